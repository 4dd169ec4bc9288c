//go:build linux

package workload

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/filetest"
)

var (
	id1 = strings.Repeat("0123456789abcdef", 4)
	id2 = strings.Repeat("fedcba9876543210", 4)
)

const (
	uid      = "8f9f5b2c-1c1d-4c8f-9b58-6fbd5d27c1a7"
	staticID = "c94d07b1a4cf1b1bd0c6d5f0a4f4c3b1"
)

var slurmID = "s5K1KKYAYG5D00"

// What paths of cgroups have on any host. Each engine has a layout of its driver systemd and one of cgroupfs.
func TestPaths(t *testing.T) {
	under := strings.ReplaceAll(uid, "-", "_")
	for path, want := range map[string]event.Workload{
		"":                                {},
		"/":                               {},
		"/init.scope":                     {Unit: "init.scope"},
		"/system.slice":                   {},
		"/system.slice/ssh.service":       {Unit: "ssh.service"},
		"/system.slice/a.service/control": {Unit: "a.service"},
		"/system.slice/a.service/b.scope": {Unit: "a.service"}, // which may give what is below it any names
		"/system.slice/system-postgresql.slice/postgresql@15-main.service":  {Unit: "postgresql@15-main.service"},
		"/system.slice/dev-hugepages.mount":                                 {Unit: "dev-hugepages.mount"},
		"/system.slice/_cgroup.service":                                     {Unit: "cgroup.service"},
		"/user.slice/user-1000.slice/session-2.scope":                       {Unit: "session-2.scope"},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/a.service": {Unit: "a.service"},
		"/user.slice/user-1000.slice/user@1000.service/init.scope":          {Unit: "init.scope"},
		"/user.slice/user-1000.slice/user@1000.service":                     {Unit: "user@1000.service"},
		"/.service":                              {},
		"/docker/" + id1:                         {Container: "0123456789ab"},
		"/docker/" + id1 + "/docker/" + id2:      {Container: "0123456789ab"},
		"/system.slice/docker-" + id1 + ".scope": {Unit: "docker-" + id1 + ".scope", Container: "0123456789ab"},
		"/system.slice/docker-" + id1 + ".scope/system.slice/a.service":               {Unit: "docker-" + id1 + ".scope", Container: "0123456789ab"},
		"/machine.slice/libpod-" + id1 + ".scope/container":                           {Unit: "libpod-" + id1 + ".scope", Container: "0123456789ab"},
		"/machine.slice/libpod-conmon-" + id1 + ".scope":                              {Unit: "libpod-conmon-" + id1 + ".scope"},
		"/libpod_parent/libpod-" + id1:                                                {Container: "0123456789ab"},
		"/system.slice/web.service/libpod-payload-" + id1:                             {Unit: "web.service", Container: "0123456789ab"},
		"/user.slice/user-7.slice/user@7.service/user.slice/libpod-" + id1 + ".scope": {Unit: "libpod-" + id1 + ".scope", Container: "0123456789ab"},
		"/system.slice/nerdctl-" + id1 + ".scope":                                     {Unit: "nerdctl-" + id1 + ".scope", Container: "0123456789ab"},
		"/default/" + id1: {Container: "0123456789ab"},
		"/kubepods/burstable/pod" + uid + "/" + id1:                              {Container: "0123456789ab"},
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id1 + ".scope": {Unit: "crio-" + id1 + ".scope", Container: "0123456789ab"},
		"/slurm/uid_1000/job_42/step_0/task_1":                                   {Job: "42", Step: "0"},
		"/slurm_node1/uid_1000/job_42/step_batch":                                {Job: "42", Step: "batch"},
		"/slurm/uid_1000":        {},
		"/slurm/uid_1000/job_42": {Job: "42"},
		"/system.slice/slurmstepd.scope/job_42/step_extern/user/task_0":             {Unit: "slurmstepd.scope", Job: "42", Step: "extern"},
		"/system.slice/node1_slurmstepd.scope/job_42/step_3/slurm":                  {Unit: "node1_slurmstepd.scope", Job: "42", Step: "3"},
		"/system.slice/slurmstepd.scope/" + slurmID + "/step_interactive/user":      {Unit: "slurmstepd.scope", Job: slurmID, Step: "interactive"},
		"/system.slice/n1_slurmstepd.scope/s7GNM8C46JMF00/step_0/user/task_special": {Unit: "n1_slurmstepd.scope", Job: "s7GNM8C46JMF00", Step: "0"},
		"/system.slice/n1_slurmstepd.scope/slurmd":                                  {Unit: "n1_slurmstepd.scope"},
		"/system.slice/slurmstepd.scope/system":                                     {Unit: "slurmstepd.scope"},
		"/user.slice/user-7.slice/user@7.service/slurmstepd.scope/job_42/step_0":    {Unit: "slurmstepd.scope"}, // made by a user
		"/system.slice/a.service/slurm/uid_0/job_42":                                {Unit: "a.service"},
		"/system.slice/slurmstepd.scope/job_x/step_0":                               {Unit: "slurmstepd.scope"},
	} {
		if got := OfPath(path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

// files are below a folder.
func files(t *testing.T, all map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range all {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The pods of a host have their names from the kubelet's folders of logs, whatever runs their containers.
func TestPods(t *testing.T) {
	under := strings.ReplaceAll(uid, "-", "_")
	root := files(t, map[string]string{
		"var/log/containers/web-0_shop_nginx-" + id1 + ".log":                         "",
		"var/log/containers/not a log":                                                "",
		"var/log/pods/shop_web-0_" + uid + "/nginx/0.log":                             "",
		"var/log/pods/kube-system_etcd-node1_" + staticID + "/etcd/0.log":             "",
		"var/lib/containers/storage/overlay-containers/containers.json":               `[{"id":"` + id2 + `","names":["k8s_side_web-0_shop_` + uid + `_0"],"metadata":"{\"pod-name\":\"web-0\",\"name\":\"k8s_side_web-0_shop_` + uid + `_0\",\"metadata-name\":\"side\",\"image-name\":\"quay.io/side:1\"}"}]`,
		"run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id1 + "/config.json": `{"annotations":{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.image-name":"docker.io/library/nginx:1.27"}}`,
	})
	nginx := event.Workload{Pod: "web-0", Namespace: "shop", Container: "nginx", Image: "docker.io/library/nginx:1.27"}
	side := event.Workload{Pod: "web-0", Namespace: "shop", Container: "side", Image: "quay.io/side:1"}
	etcd := event.Workload{Pod: "etcd-node1", Namespace: "kube-system"}
	with := func(w event.Workload, unit string) event.Workload {
		w.Unit = unit
		return w
	}
	slice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice"
	h := NewHost(root, nil)
	for path, want := range map[string]event.Workload{
		slice + "/cri-containerd-" + id1 + ".scope": with(nginx, "cri-containerd-"+id1+".scope"),
		slice + "/docker-" + id1 + ".scope":         with(nginx, "docker-"+id1+".scope"),
		slice + "/crio-" + id2 + ".scope":           with(side, "crio-"+id2+".scope"),
		slice + "/crio-" + id2 + ".scope/container": with(side, "crio-"+id2+".scope"),
		slice: {Pod: "web-0", Namespace: "shop"},
		"/kubepods/burstable/pod" + uid + "/" + id1:                                                        nginx,
		"/kubepods/pod" + uid + "/crio-" + id2:                                                             side,
		"/kubepods/besteffort/pod" + staticID:                                                              etcd,
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + staticID + ".slice":                 etcd, // kind
		"/kubelet/kubepods/besteffort/pod" + staticID:                                                      etcd,
		"/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id1: with(nginx, "containerd.service"),
		"/kubepods/burstable/pod" + uid + "/crio-conmon-" + id2:                                            {Pod: "web-0", Namespace: "shop"},
		"/user.slice/user-7.slice/user@7.service/kubepods-pod" + under + ".slice/docker-" + id1 + ".scope": {Unit: "docker-" + id1 + ".scope", Container: "0123456789ab"}, // made by a user
		"/system.slice/a.service":                                                                          {Unit: "a.service"},
	} {
		if got, settled := h.Workload(path); got != want || settled == (got.Container == "0123456789ab") {
			t.Errorf("%s: got %+v, %v, want %+v", path, got, settled, want)
		}
	}
	// Without the folder containers, as in some distributions, what runs the container names it.
	if err := os.RemoveAll(filepath.Join(root, "var/log/containers")); err != nil {
		t.Fatal(err)
	}
	if got, settled := NewHost(root, nil).Workload("/kubepods/burstable/pod" + uid + "/" + id1); got != nginx || !settled {
		t.Errorf("without the folder containers: %+v, %v", got, settled)
	}
}

// A pod that the kubelet has just made appears.
func TestLatePod(t *testing.T) {
	root := files(t, map[string]string{"var/log/pods/a_b_x": ""})
	h, path := NewHost(root, nil), "/kubepods/pod"+uid
	if got, settled := h.Workload(path); got != (event.Workload{}) || settled {
		t.Fatalf("got %+v, %v of an unknown pod", got, settled)
	}
	if err := os.Mkdir(filepath.Join(root, "var/log/pods/shop_web-1_"+uid), 0o755); err != nil {
		t.Fatal(err)
	}
	time.Sleep(rereadAfter)
	if got, settled := h.Workload(path); got != (event.Workload{Pod: "web-1", Namespace: "shop"}) || !settled {
		t.Errorf("got %+v, %v", got, settled)
	}
}

// Containers without Kubernetes have their names from Docker and Podman: root's, and a user's own.
func TestContainers(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	home := filepath.Join(me.HomeDir, ".local/share/containers/storage/overlay-containers/containers.json")
	root := files(t, map[string]string{
		"var/lib/docker/containers/" + id1 + "/config.v2.json":          `{"Name":"/web","Config":{"Image":"nginx:1.27","Labels":{"a":"b"}}}`,
		"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"` + id2 + `","names":["db"],"metadata":"{\"image-name\":\"docker.io/library/postgres:17\",\"name\":\"db\"}"}]`,
		home: `[{"id":"` + id1 + `","names":["mine"],"metadata":"not JSON"}]`,
	})
	h := NewHost(root, nil)
	session := "/user.slice/user-" + me.Uid + ".slice/user@" + me.Uid + ".service/user.slice/"
	for path, want := range map[string]event.Workload{
		"/docker/" + id1: {Container: "web", Image: "nginx:1.27"},
		"/machine.slice/libpod-" + id2 + ".scope/container": {Unit: "libpod-" + id2 + ".scope", Container: "db", Image: "docker.io/library/postgres:17"},
		session + "libpod-" + id1 + ".scope":                {Unit: "libpod-" + id1 + ".scope", Container: "mine"},
		session + "libpod-" + id2 + ".scope":                {Unit: "libpod-" + id2 + ".scope", Container: "fedcba987654"}, // root's container, named by a user
	} {
		if got, settled := h.Workload(path); got != want || settled == (want.Container == "fedcba987654") {
			t.Errorf("%s: got %+v, %v, want %+v", path, got, settled, want)
		}
	}
	// The list is read again when it changes.
	list := filepath.Join(root, "var/lib/containers/storage/overlay-containers/containers.json")
	if err := os.WriteFile(list, []byte(`[{"id":"`+id2+`","names":["cache"]}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(list, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, _ := h.Workload("/machine.slice/libpod-" + id2 + ".scope"); got.Container != "cache" {
		t.Errorf("after a change: %+v", got)
	}
}

// Without Kubernetes whoever starts a container of containerd chooses its namespace and its id, and so its cgroup.
func TestTasks(t *testing.T) {
	const config = "/config.json"
	tasks := "run/containerd/io.containerd.runtime.v2.task/"
	root := files(t, map[string]string{
		tasks + "build/image-builder-7" + config:                         "{}",
		tasks + "default/" + id1 + config:                                `{"annotations":{"nerdctl/name":"web"}}`,
		"run/k3s/containerd/io.containerd.runtime.v2.task/a/db" + config: "{}",
	})
	h := NewHost(root, nil)
	for path, want := range map[string]event.Workload{
		"/build/image-builder-7":        {Container: "image-builder-7"},
		"/build/image-builder-7/a/b":    {Container: "image-builder-7"},
		"/build/image-builder-7/" + id2: {Container: "image-builder-7"}, // made by the container
		"/build/other":                  {},
		"/build":                        {},
		"/a/build/image-builder-7":      {},
		"/a/db":                         {Container: "db"},
		"/default/" + id1:               {Container: "web"},
	} {
		if got, settled := h.Workload(path); got != want || !settled {
			t.Errorf("%s: got %+v, %v, want %+v", path, got, settled, want)
		}
	}
}

// A file may be as large as it likes, and a name as long.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 1000)
	root := files(t, map[string]string{
		"var/lib/docker/containers/" + id1 + "/config.v2.json": `{"Name":"/` + long + `"}`,
		"var/lib/docker/containers/" + id2 + "/config.v2.json": `{"Name":"/web","Config":{"Image":"` + strings.Repeat("x", mostBytes) + `"}}`,
	})
	h := NewHost(root, nil)
	if got, settled := h.Workload("/docker/" + id1); got.Container != long[:longest] || !settled {
		t.Errorf("got %+v, %v", got, settled)
	}
	if got, settled := h.Workload("/docker/" + id2); got.Container != "fedcba987654" || settled {
		t.Errorf("got %+v, %v", got, settled)
	}
}

// A user's file that is a pipe does not stop the search.
func TestPipe(t *testing.T) {
	root := files(t, map[string]string{"var/lib/docker/containers/" + id1 + "/other": ""})
	if err := syscall.Mkfifo(filepath.Join(root, "var/lib/docker/containers", id1, "config.v2.json"), 0o644); err != nil {
		t.Skip(err)
	}
	if got, settled := NewHost(root, nil).Workload("/docker/" + id1); got.Container != "0123456789ab" || settled {
		t.Errorf("got %+v, %v", got, settled)
	}
}

// A user may link the file to a device that only root may open, and opening it may have effects: it is not opened.
func TestDeviceIsNotOpened(t *testing.T) {
	root := files(t, map[string]string{"var/lib/docker/containers/" + id1 + "/other": ""})
	device := filepath.Join(root, "device")
	if err := unix.Mkfifo(device, 0o644); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(device, filepath.Join(root, "var/lib/docker/containers", id1, "config.v2.json")); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, device, unix.IN_OPEN); err != nil {
		t.Skip(err)
	}
	NewHost(root, nil).Workload("/docker/" + id1)
	if n, err := unix.Read(watch, make([]byte, 4096)); n > 0 || err != unix.EAGAIN {
		t.Errorf("it was opened: %d bytes of events, %v", n, err)
	}
}

// A user with many cgroups, whose containers' files change all the time, has a bounded part of the time; another user has the names.
func TestFilesOfUserAreBounded(t *testing.T) {
	h := NewHost(t.TempDir(), nil)
	reads := 0
	slow := func() { reads++; time.Sleep(mostSpent / 4) }
	began := time.Now()
	for range 1000 {
		h.paying("1000", slow)
	}
	if most := 6 + int(time.Since(began)/(spentShare*mostSpent/4)); reads < 1 || reads > most {
		t.Errorf("%d reads of 1000, want at most %d", reads, most)
	}
	for _, user := range []string{"1001", ""} {
		read := false
		if h.paying(user, func() { read = true }); !read {
			t.Errorf("user %q is not read", user)
		}
	}
}

// A folder of a user's that never answers keeps nobody waiting.
func TestServedFolder(t *testing.T) {
	served := filetest.Serve(t, 1000)
	h := NewHost("/", nil)
	t.Cleanup(h.asked.End)
	for _, name := range []string{"containers.json", filetest.Silent} {
		var into any
		began := time.Now()
		if ok := h.readJSON("1000", filepath.Join(served.Folder, name), mostBytes, &into); ok || time.Since(began) > time.Second {
			t.Errorf("%s is read after %v: %v", name, time.Since(began), ok)
		}
	}
}

// The number of a job whose cgroup has a SLUID is in the title of slurmstepd, a process of root's.
func TestSLUID(t *testing.T) {
	job := "/system.slice/slurmstepd.scope/" + slurmID
	root := files(t, map[string]string{
		"cgroup" + job + "/step_0/slurm/cgroup.procs": "456\n457\n",
		"proc/456/cmdline":                            "python\x00",
		"proc/457/cmdline":                            "slurmstepd: [123.0]\x00",
	})
	h := NewHost(root, func(path string) (string, bool) { return filepath.Join(root, "cgroup", path), true })
	want, known := event.Workload{Unit: "slurmstepd.scope", Job: "123", Step: "0"}, true
	if os.Getuid() != 0 { // the files belong to the user
		want.Job, known = slurmID, false
	}
	if got, settled := h.Workload(job + "/step_0/user/task_0"); got != want || settled != known {
		t.Errorf("got %+v, %v, want %+v", got, settled, want)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/457/cmdline"), []byte("bash -c slurmstepd: [7.0]\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	want.Job = slurmID
	if got, settled := h.Workload(job + "/step_0"); got != want || settled {
		t.Errorf("got %+v, %v of a process with another title", got, settled)
	}
}

func FuzzPath(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/crio-" + id1 + ".scope")
	f.Add("/system.slice/slurmstepd.scope/job_1/step_2")
	f.Add("/slurm/uid_1/" + slurmID + "/step_")
	f.Add("/user.slice/user-1.slice/user@1.service/_.scope//x")
	f.Fuzz(func(t *testing.T, path string) {
		at := parse(path)
		for _, name := range []string{at.Unit, at.Job, at.Step, at.container} {
			if !strings.Contains(path, name) || strings.Contains(name, "/") {
				t.Errorf("%q has %q", path, name)
			}
		}
		if at.Step != "" && at.Job == "" || at.Pod+at.Namespace+at.Container+at.Image != "" {
			t.Errorf("%q: %+v", path, at)
		}
		if w := OfPath(path); w.Container != "" && !strings.HasPrefix(at.container, w.Container) {
			t.Errorf("%q: %+v", path, w)
		}
	})
}

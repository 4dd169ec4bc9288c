//go:build vm

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const containerdConf = `version = 3
root = "/tmp/lib"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "example.org/program:1"
`

const crictlConf = `runtime-endpoint: unix:///run/containerd/containerd.sock
timeout: 120
`

// makeImage makes an image of busybox, for the programs of the test and for what keeps a pod's namespaces.
const makeImage = `
	cd /tmp
	mkdir -p bin
	cp /usr/bin/busybox bin
	for name in sh dd; do ln -s busybox bin/$name; done
	tar -cf layer.tar bin
	digest=$(sha256sum layer.tar | cut -d " " -f 1)
	cat >config.json <<-END
		{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/bin/busybox", "sleep", "3600"]},
		"rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]}}
	END
	cat >manifest.json <<-END
		[{"Config": "config.json", "RepoTags": ["example.org/program:1"], "Layers": ["layer.tar"]}]
	END
	tar -cf image.tar manifest.json config.json layer.tar
	for namespace in k8s.io build; do ctr -n $namespace images import image.tar; done`

// writeLate writes a number of times. It waits until trace has read the names of its cgroup.
const writeLate = "sleep 8; exec /bin/dd if=/dev/zero of=/dev/null bs=1 count=%d status=none"

// startContainerd starts it in a root file system, with folders of this machine where a host has them.
func startContainerd(t *testing.T, root rootFS) {
	t.Helper()
	sh(t, `cd %s; mount --bind . .; cd %[1]s; mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev; mount -t tmpfs none tmp
		mount --bind /run run; mkdir -p /var/log/pods /var/log/containers; mount --bind /var/log var/log`, root)
	t.Cleanup(func() { sh(t, "umount -lR %s", root) })
	root.write(t, "etc/hosts", "127.0.0.1 localhost\n")
	root.write(t, "tmp/containerd.toml", containerdConf)
	log := filepath.Join(t.TempDir(), "log")
	daemon := exec.Command("sh", "-ec", `
		mkdir -p /sys/fs/cgroup/system.slice/containerd.service
		echo $$ >/sys/fs/cgroup/system.slice/containerd.service/cgroup.procs
		exec chroot "$1" containerd --log-level warn --config /tmp/containerd.toml >"$2" 2>&1`, "sh", string(root), log)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Signal(os.Interrupt)
		daemon.Wait()
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("containerd:\n%s", text)
		}
	})
	waitLonger(t, "containerd", func() bool { return exec.Command("chroot", string(root), "ctr", "version").Run() == nil })
}

// A kubelet starts pods, of the network of this machine.
type kubelet struct {
	crictl, conf, image string
}

// A pod has one container. Without logs nothing is in the folders that the kubelet has for kubectl logs.
type pod struct {
	namespace, name, uid, parent, container string
	logs                                    bool
	writes                                  int
}

func (k kubelet) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(k.crictl, append([]string{"--config", k.conf}, args...)...)
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("crictl %q: %v\n%s", args, err, &messages)
	}
	return strings.TrimSpace(string(out))
}

// runToEnd starts a pod, waits for the end of its container, and returns the container's id and its cgroup, as the kernel lists it.
func (k kubelet) runToEnd(t *testing.T, p pod) (id, cgroup string) {
	t.Helper()
	const hostNetwork = `"security_context": {"namespace_options": {"network": 2}}`
	logs, log := "", ""
	if p.logs {
		logs, log = fmt.Sprintf("/var/log/pods/%s_%s_%s", p.namespace, p.name, p.uid), p.container+"/0.log"
	}
	sandbox := k.write(t, `{"metadata": {"name": %q, "namespace": %q, "uid": %q}, "log_directory": %q, "linux": {"cgroup_parent": %q, %s}}`,
		p.name, p.namespace, p.uid, logs, p.parent, hostNetwork)
	config := k.write(t, `{"metadata": {"name": %q}, "image": {"image": %q, "user_specified_image": "example.org/program:1"},
		"command": ["/bin/sh", "-c", %q], "log_path": %q, "linux": {%s}}`,
		p.container, k.image, fmt.Sprintf(writeLate, p.writes), log, hostNetwork)
	id = k.run(t, "create", "--no-pull", k.run(t, "runp", sandbox), config, sandbox)
	k.run(t, "start", id)
	if p.logs {
		link := fmt.Sprintf("/var/log/containers/%s_%s_%s-%s.log", p.name, p.namespace, p.container, id)
		if err := os.Symlink(filepath.Join(logs, log), link); err != nil {
			t.Fatal(err)
		}
	}
	list := sh(t, "cat /proc/$(cat /run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/init.pid)/cgroup", id)
	_, cgroup, _ = strings.Cut(strings.TrimSpace(list), "0::")
	waitLonger(t, "the end of "+p.container, func() bool {
		return strings.Contains(k.run(t, "ps", "--all", "--quiet", "--no-trunc", "--state", "exited"), id)
	})
	return id, cgroup
}

// write writes a file for crictl and returns its name.
func (k kubelet) write(t *testing.T, format string, args ...any) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// A counter is a trace that counts writes.
type counter struct {
	trace      *exec.Cmd
	out, notes strings.Builder
}

// startCounter runs a script first, in a mount namespace of its own.
func startCounter(t *testing.T, script, program string) *counter {
	t.Helper()
	c := &counter{trace: exec.Command("unshare", "--mount", "sh", "-ec", script+`
		exec trace "$1"`, "sh", program)}
	c.trace.Stdout, c.trace.Stderr = &c.out, &c.notes
	if err := c.trace.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.trace.Process.Kill() })
	return c
}

// has compares what it counted with lines in any order.
func (c *counter) has(t *testing.T, want ...string) {
	t.Helper()
	c.trace.Process.Signal(os.Interrupt)
	if err := c.trace.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &c.notes)
	}
	got := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), &c.notes)
	}
}

// Containers of a real containerd are seen under their names, in the kernel: of pods that are started as the kubelet does it, and of one that
// is started without Kubernetes. What runs outside of them is counted apart.
func TestVMContainerd(t *testing.T) {
	folder, err := filepath.Abs("../../.vmtest")
	if err != nil {
		t.Fatal(err)
	}
	root, crictl := rootFS(filepath.Join(folder, "containerd")), filepath.Join(folder, "crictl")
	if _, err := os.Stat(crictl); err != nil {
		t.Skip("needs Debian's containerd and crictl, which .ci/setup containerd installs")
	}
	startContainerd(t, root)
	root.run(t, makeImage)
	k := kubelet{crictl: crictl}
	k.conf = k.write(t, crictlConf)
	k.image = k.run(t, "images", "--quiet", "--no-trunc") // the kubelet passes the image's id
	all := startCounter(t, "", `
		syscall:enter / comm == "dd" && nr == write / { @all = count() }
		syscall:enter / comm == "dd" && nr == write && pod == "web-0" / { @pod = count() }
		syscall:enter / comm == "dd" && nr == write && container == "image-builder-7" / { @container = count() }
		syscall:enter / comm == "dd" && nr == write / { @[cgroup, unit, namespace, pod, container, image] = count() }`)
	// The folders of the kubelet are all that our DaemonSet sees.
	ofKubelet := startCounter(t, "mount -t tmpfs none /run/containerd",
		`syscall:enter / comm == "dd" && nr == write / { @[namespace, pod, container, image] = count() }`)

	const uid = "8f9f5b2c-1c1d-4c8f-9b58-6fbd5d27c1a7"
	web := pod{namespace: "shop", name: "web-0", uid: uid, container: "nginx", parent: "/kubepods/besteffort/pod" + uid, logs: true, writes: 400}
	inWeb, webCgroup := k.runToEnd(t, web)
	if want := web.parent + "/" + inWeb; webCgroup != want {
		t.Errorf("the kernel lists %q, not %q", webCgroup, want)
	}
	// The kubelet has the driver systemd, though containerd has cgroupfs. Only containerd knows the names.
	const slice = "kubepods-besteffort-pod8f9f5b2c_1c1d_4c8f_9b58_6fbd5d27c1a8.slice"
	db := pod{namespace: "bank", name: "db-0", uid: "8f9f5b2c-1c1d-4c8f-9b58-6fbd5d27c1a8", container: "postgres",
		parent: "/kubepods.slice/kubepods-besteffort.slice/" + slice, writes: 30}
	inDB, dbCgroup := k.runToEnd(t, db)
	if want := "/system.slice/" + slice + ":cri-containerd:" + inDB; dbCgroup != want {
		t.Errorf("the kernel lists %q, not %q", dbCgroup, want)
	}
	k.run(t, "rmp", "--force", "--all")
	root.run(t, fmt.Sprintf(`ctr -n build run --rm example.org/program:1 image-builder-7 /bin/sh -c "`+writeLate+`"`, 5))
	outside := strings.TrimSpace(sh(t, "dd if=/dev/zero of=/dev/null bs=1 count=2 status=none; sed -n s/^0:://p /proc/self/cgroup"))

	all.has(t, "@all: 437", "@pod: 400", "@container: 5",
		"@["+webCgroup+", -, shop, web-0, nginx, example.org/program:1]: 400",
		"@["+dbCgroup+", -, bank, db-0, postgres, example.org/program:1]: 30",
		"@[/build/image-builder-7, -, -, -, image-builder-7, -]: 5",
		"@["+outside+", -, -, -, -, -]: 2")
	ofKubelet.has(t, "@[shop, web-0, nginx, -]: 400", "@[-, -, "+inDB[:12]+", -]: 30", "@[-, -, -, -]: 7")
}

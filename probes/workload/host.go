//go:build linux

package workload

import (
	"bytes"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"trace/probes/event"
	"trace/probes/proc"
)

// Host has the names of a host's workloads. Its methods may be called from several goroutines.
type Host struct {
	root string
	// dir returns the directory of the cgroup with a path.
	dir   func(path string) (string, bool)
	asked proc.Questions

	mu      sync.Mutex
	kubelet kubelet
	stores  map[string]*store // by the file
	purses  map[string]*purse // by the user
}

// A purse is the time that may go into the files of a user, who may have any number of cgroups, and change these files again and again.
type purse struct {
	left time.Duration
	at   time.Time
}

// mostSpent is how much of it there is at once, and spentShare the part of the time that comes in. The files of a container take less than a millisecond.
const (
	mostSpent  = 500 * time.Millisecond
	spentShare = 20
)

// paying reads files of a user, unless too much time went into these.
func (h *Host) paying(user string, read func()) {
	if user == "" {
		read()
		return
	}
	began := time.Now()
	p := h.purses[user]
	if p == nil {
		p = &purse{mostSpent, began}
		h.purses[user] = p
	}
	p.left, p.at = min(mostSpent, p.left+began.Sub(p.at)/spentShare), began
	if p.left > 0 {
		read()
		p.left -= time.Since(began)
	}
}

// NewHost returns the host whose files are below root, usually /. dir returns the directory of the cgroup with a path.
func NewHost(root string, dir func(path string) (string, bool)) *Host {
	return &Host{root: root, dir: dir, stores: map[string]*store{}, purses: map[string]*purse{}}
}

// Workload returns what the cgroup with a path runs. settled is false if a name is missing that may come: the cgroup of a container is made
// before the files that name it.
func (h *Host) Workload(path string) (w event.Workload, settled bool) {
	at := parse(path)
	// An id that the path does not show to be one is the only name. What is below it can give its cgroups any names.
	if id := h.task(path); id != "" && id != at.container {
		return event.Workload{Container: id}, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	settled = true
	if at.pod != "" || at.container != "" {
		settled = h.name(&at)
	}
	if at.job != "" {
		number := h.jobNumber(at.job)
		if number != "" {
			at.Job = number
		}
		settled = settled && number != ""
	}
	return at.Workload, settled
}

// name finds the names of a container and of its pod.
func (h *Host) name(at *place) (settled bool) {
	for _, find := range []func(*place){h.ofKubelet, h.ofDocker, h.ofStorage, h.ofContainerd} {
		h.paying(at.user, func() { find(at) })
	}
	settled = (at.pod == "" || at.Pod != "") && (at.container == "" || at.Container != "")
	at.nameContainer("")
	return settled
}

// longest is how much of a name counts: systemd and Kubernetes allow 255 bytes at most.
const longest = 255

// add takes what is not known yet.
func (at *place) add(w event.Workload) {
	for _, name := range []struct {
		to   *string
		from string
	}{{&at.Pod, w.Pod}, {&at.Namespace, w.Namespace}, {&at.Container, w.Container}, {&at.Image, w.Image}} {
		if *name.to == "" {
			*name.to = strings.Clone(name.from[:min(len(name.from), longest)])
		}
	}
}

// kubelet is what the folders of the kubelet's logs name.
type kubelet struct {
	read time.Time
	// containers by their ids, and pods by their UIDs.
	containers, pods map[string]event.Workload
}

// rereadAfter is how long what was read of folders counts, for ids that it lacks.
const rereadAfter = 100 * time.Millisecond

// ofKubelet uses the folders of logs, which the kubelet has for kubectl logs.
func (h *Host) ofKubelet(at *place) {
	if at.user != "" {
		return
	}
	_, hasPod := h.kubelet.pods[at.pod]
	_, hasContainer := h.kubelet.containers[at.container]
	if (at.pod != "" && !hasPod || at.container != "" && !hasContainer) && time.Since(h.kubelet.read) > rereadAfter {
		h.kubelet = readKubelet(filepath.Join(h.root, "var/log"))
	}
	at.add(h.kubelet.containers[at.container])
	at.add(h.kubelet.pods[at.pod])
}

var (
	// POD_NAMESPACE_CONTAINER-ID.log
	logOfContainer = lazily(`^([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log$`)
	// NAMESPACE_POD_UID
	logsOfPod = lazily(`^([^_]+)_([^_]+)_([^_]+)$`)
)

// readKubelet reads the folders containers and pods of a folder. A folder may be missing: the kubelet's or the distribution's choice.
func readKubelet(logs string) kubelet {
	k := kubelet{read: time.Now(), containers: map[string]event.Workload{}, pods: map[string]event.Workload{}}
	for _, name := range namesIn(filepath.Join(logs, "containers")) {
		if m := logOfContainer().FindStringSubmatch(name); m != nil {
			k.containers[m[4]] = event.Workload{Pod: m[1], Namespace: m[2], Container: m[3]}
		}
	}
	for _, name := range namesIn(filepath.Join(logs, "pods")) {
		if m := logsOfPod().FindStringSubmatch(name); m != nil {
			k.pods[m[3]] = event.Workload{Namespace: m[1], Pod: m[2]}
		}
	}
	return k
}

// namesIn returns the names in a folder, in no order.
func namesIn(folder string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // what was read counts
	return names
}

// data returns the folder of the user's or the system's data of an engine.
func (h *Host) data(at *place, engine string) string {
	if at.user == "" {
		return filepath.Join(h.root, "var/lib", engine)
	}
	u, err := user.LookupId(at.user)
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return filepath.Join(h.root, u.HomeDir, ".local/share", engine)
}

// stepDaemon is the title that slurmstepd gives its process (setproctitle of slurmd/slurmstepd): job and step.
var stepDaemon = lazily(`^slurmstepd: \[([0-9]+)\.`)

// jobNumber returns the number of the Slurm job whose cgroup is named by a SLUID, or "". The daemon of each step has it, in a cgroup of the
// step's. It is root's process, so no user can pretend to be it.
func (h *Host) jobNumber(job string) string {
	dir, ok := h.dir(job)
	if !ok {
		return ""
	}
	daemons, _ := filepath.Glob(filepath.Join(dir, "step_*", "slurm", "cgroup.procs")) // the pattern is right
	for _, procs := range daemons {
		pids, err := os.ReadFile(procs)
		if err != nil {
			continue // it is gone
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			if !ownedByRoot(filepath.Join(h.root, "proc", pid)) { // the memory of a user's process may not answer
				continue
			}
			title, err := os.ReadFile(filepath.Join(h.root, "proc", pid, "cmdline"))
			if m := stepDaemon().FindSubmatch(title); err == nil && m != nil {
				return string(bytes.Clone(m[1]))
			}
		}
	}
	return ""
}

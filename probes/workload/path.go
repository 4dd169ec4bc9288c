// Package workload finds out what a cgroup runs: a systemd unit, a container, a Kubernetes pod, a Slurm job. It reads the path of the cgroup,
// and files of this host that have names for the ids in it. It asks no server.
package workload

import (
	"regexp"
	"strings"
	"sync"

	"trace/probes/event"
)

// place is what the path of a cgroup has.
type place struct {
	event.Workload
	// container is the id of a container, and pod the UID of a Kubernetes pod; "" without one.
	container, pod string
	// user is the number of the user to whom the tree of cgroups around it belongs, "" for root. A user may give cgroups there any name.
	user string
	// job is the path of the cgroup of a Slurm job.
	job string
}

// OfPath returns what the path of a cgroup has on any host.
func OfPath(path string) event.Workload {
	at := parse(path)
	at.nameContainer("")
	return at.Workload
}

// nameContainer sets the name of a container. Without one the container has the start of its id, as container engines print it.
func (at *place) nameContainer(name string) {
	const short = 12
	switch {
	case name != "":
		at.Container = name
	case at.Container == "":
		at.Container = at.container[:min(short, len(at.container))]
	}
}

// lazily returns a pattern that is compiled when it is first used: few programs name what cgroups run.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

var (
	// 64 digits are the id of a container of Docker, containerd, CRI-O or Podman. A prefix names the engine: docker-ID.scope,
	// cri-containerd-ID.scope, crio-ID, libpod-ID.scope. containerd with the driver cgroupfs under a systemd kubelet makes
	// kubepods-podUID.slice:cri-containerd:ID.
	containerID = lazily(`^(?:(.*)[-:])?([0-9a-f]{64})(?:\.scope)?$`)
	// The kubelet's driver systemd makes kubepods-burstable-podUID.slice, with _ for -, and its driver cgroupfs podUID. The UID of a static
	// pod is a hash.
	podUID = lazily(`^(?:(?:.*-)?kubepods-(?:[a-z]+-)?)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice.*)?$`)
	// Slurm 26.05 names the cgroup of a job by its SLUID, earlier versions, and CgroupJobIdPaths=yes, by its number.
	slurmJob  = lazily(`^(?:job_([0-9]+)|(s[0-9A-HJKMNP-TV-Z]{13}))$`)
	userSlice = lazily(`^user-([0-9]+)\.slice$`)
	// The manager of a user's units. Its own unit is the system's.
	userManager = lazily(`^user@[0-9]+\.service$`)
)

// parse reads a path as in /proc/PID/cgroup. The outermost container counts: what is inside can give its cgroups any names.
func parse(path string) (at place) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kubepods := false
	for i, part := range parts {
		if m := userSlice().FindStringSubmatch(part); m != nil && i == 1 && parts[0] == "user.slice" {
			at.user = m[1]
		}
		if isUnit(part) && (at.Unit == "" || userManager().MatchString(at.Unit)) {
			at.Unit = strings.TrimPrefix(part, "_") // of names that the kernel would take for files, see cg_escape of systemd
		}
		kubepods = kubepods || at.user == "" && strings.Contains(part, "kubepods")
		if m := podUID().FindStringSubmatch(part); m != nil && kubepods && at.pod == "" {
			at.pod = strings.ReplaceAll(m[1], "_", "-")
		}
		// What watches a container, conmon, is outside of it.
		if m := containerID().FindStringSubmatch(part); m != nil && !strings.HasSuffix(m[1], "conmon") {
			at.container = m[2]
			return at
		}
		if isSlurm(parts[:i+1]) {
			at.slurm(parts, i+1)
		}
	}
	return at
}

// isUnit reports whether a name is the name of a systemd unit with tasks of its own.
func isUnit(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 {
		return false
	}
	switch name[dot:] {
	case ".service", ".scope", ".socket", ".mount", ".swap":
		return true
	}
	return false
}

// isSlurm reports whether the last part is the cgroup that has the jobs: [NODE_]slurmstepd.scope of system.slice, or slurm[_NODE]/uid_N of
// cgroup v1.
func isSlurm(parts []string) bool {
	last := len(parts) - 1
	name := parts[last]
	if name == "slurmstepd.scope" || strings.HasSuffix(name, "_slurmstepd.scope") {
		return last == 1 && parts[0] == "system.slice"
	}
	return last == 1 && strings.HasPrefix(name, "uid_") && (parts[0] == "slurm" || strings.HasPrefix(parts[0], "slurm_"))
}

// slurm reads the job and the step, which begin at i.
func (at *place) slurm(parts []string, i int) {
	if i >= len(parts) {
		return
	}
	m := slurmJob().FindStringSubmatch(parts[i])
	if m == nil {
		return
	}
	at.Job = m[1] + m[2]
	if m[2] != "" {
		at.job = "/" + strings.Join(parts[:i+1], "/")
	}
	if i+1 < len(parts) {
		at.Step, _ = strings.CutPrefix(parts[i+1], "step_")
		if at.Step == parts[i+1] {
			at.Step = ""
		}
	}
}

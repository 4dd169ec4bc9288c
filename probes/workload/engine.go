//go:build linux

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// This file reads what container engines keep of their containers.

// mostBytes bounds the file of a container, and mostListed the list of all containers of Podman.
const (
	mostBytes  = 1 << 20
	mostListed = 16 << 20
)

// readJSON reads a file of a user, or with "" of the system, of at most that many bytes.
func (h *Host) readJSON(user, name string, most int64, into any) bool {
	f, err := h.open(user, name)
	if err != nil {
		return false
	}
	defer f.Close()
	return decodeJSON(f, most, into)
}

func decodeJSON(f *os.File, most int64, into any) bool {
	text, err := io.ReadAll(io.LimitReader(f, most))
	return err == nil && json.Unmarshal(text, into) == nil
}

// open opens a regular file. A folder of a user's may be a program's (FUSE), which may never answer, so there a helper opens it.
func (h *Host) open(user, name string) (*os.File, error) {
	if user == "" {
		return openRegular(name)
	}
	id, err := strconv.ParseUint(user, 10, 32)
	if err != nil {
		return nil, err
	}
	return h.asked.OpenBelow(uint32(id), 0, "/", name, true)
}

// openRegular opens a regular file. A user may have put anything in its place, also a link to what only root may open: opening a pipe could wait forever, and
// opening a device may have effects (a watchdog begins to count). So it is looked up first.
func openRegular(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

func ownedByRoot(name string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}

// labels are what the engines of Kubernetes note at a container.
type labels map[string]string

// first returns the first of the labels that there is.
func (l labels) first(names ...string) string {
	for _, name := range names {
		if l[name] != "" {
			return l[name]
		}
	}
	return ""
}

// workload returns what labels of dockershim, cri-dockerd and CRI-O (io.kubernetes.pod.name), containerd (io.kubernetes.cri.sandbox-name)
// and nerdctl name.
func (l labels) workload() event.Workload {
	return event.Workload{
		Pod:       l.first("io.kubernetes.pod.name", "io.kubernetes.cri.sandbox-name"),
		Namespace: l.first("io.kubernetes.pod.namespace", "io.kubernetes.cri.sandbox-namespace"),
		Container: l.first("io.kubernetes.container.name", "io.kubernetes.cri.container-name", "nerdctl/name"),
		Image:     l.first("io.kubernetes.cri-o.ImageName", "io.kubernetes.cri.image-name"),
	}
}

// ofDocker uses the file that Docker keeps of each container.
func (h *Host) ofDocker(at *place) {
	folder := h.data(at, "docker")
	if at.container == "" || folder == "" {
		return
	}
	var config struct {
		Name   string
		Config struct {
			Image  string
			Labels labels
		}
	}
	if !h.readJSON(at.user, filepath.Join(folder, "containers", at.container, "config.v2.json"), mostBytes, &config) {
		return
	}
	at.add(config.Config.Labels.workload())
	at.add(event.Workload{Container: strings.TrimPrefix(config.Name, "/"), Image: config.Config.Image})
}

// store is the list of containers of Podman or CRI-O, as it was read.
type store struct {
	changed    time.Time
	containers map[string]event.Workload
}

// ofStorage uses the list of containers that Podman and CRI-O share.
func (h *Host) ofStorage(at *place) {
	folder := h.data(at, "containers/storage")
	if at.container == "" || folder == "" {
		return
	}
	most := int64(mostListed)
	if at.user != "" {
		most = mostBytes
	}
	for _, driver := range []string{"overlay", "vfs", "btrfs"} {
		name := filepath.Join(folder, driver+"-containers", "containers.json")
		f, err := h.open(at.user, name)
		if err != nil {
			continue
		}
		at.add(h.stored(f, name, most)[at.container])
		f.Close()
	}
}

// stored returns the containers of a list.
func (h *Host) stored(f *os.File, name string, most int64) map[string]event.Workload {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	changed := info.ModTime()
	if s := h.stores[name]; s != nil && s.changed.Equal(changed) {
		return s.containers
	}
	var list []struct {
		ID    string
		Names []string
		// Metadata is JSON in a string.
		Metadata string
	}
	s := &store{changed: changed, containers: map[string]event.Workload{}}
	h.stores[name] = s
	if !decodeJSON(f, most, &list) {
		return nil
	}
	for _, c := range list {
		var of struct {
			Pod       string `json:"pod-name"`
			Name      string `json:"name"`
			Container string `json:"metadata-name"`
			Image     string `json:"image-name"`
		}
		_ = json.Unmarshal([]byte(c.Metadata), &of) // a container without it has its names
		w := event.Workload{Pod: of.Pod, Container: of.Container, Image: of.Image}
		if w.Container == "" {
			w.Container = of.Name
		}
		if w.Container == "" && len(c.Names) > 0 {
			w.Container = c.Names[0]
		}
		// CRI-O names a container k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT.
		if parts := strings.Split(of.Name, "_"); len(parts) == 6 && parts[0] == "k8s" {
			w.Pod, w.Namespace = parts[2], parts[3]
		}
		s.containers[c.ID] = w
	}
	return s.containers
}

// tasksOfContainerd has folders NAMESPACE/ID, below containerd's own state and below the one of k3s, for the containers that run.
const tasksOfContainerd = "io.containerd.runtime.v2.task"

func statesOfContainerd() []string { return []string{"run/containerd", "run/k3s/containerd"} }

// ofContainerd uses the configuration with which containerd runs a container. Without Kubernetes a container is named by its id.
func (h *Host) ofContainerd(at *place) {
	if at.container == "" || at.user != "" {
		return
	}
	for _, state := range statesOfContainerd() {
		tasks := filepath.Join(h.root, state, tasksOfContainerd)
		for _, namespace := range namesIn(tasks) {
			var config struct {
				Annotations labels
			}
			if h.readJSON("", filepath.Join(tasks, namespace, at.container, "config.json"), mostBytes, &config) {
				at.add(config.Annotations.workload())
			}
		}
	}
}

// task returns the id of the container of containerd whose cgroup is /NAMESPACE/ID, or is below it. Whoever starts a container without
// Kubernetes chooses both: only containerd can list them.
func (h *Host) task(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 3 || parts[1] == "" || parts[2] == "" {
		return ""
	}
	for _, state := range statesOfContainerd() {
		if _, err := os.Stat(filepath.Join(h.root, state, tasksOfContainerd, parts[1], parts[2], "config.json")); err == nil {
			return parts[2]
		}
	}
	return ""
}

//go:build linux

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/probes/workload"
)

// Cgroups maps ids of this host's cgroups, the inodes of their directories, to paths as in /proc/PID/cgroup. It reads the host on first
// use. Its methods may be called from several goroutines.
type Cgroups struct {
	// hierarchy returns nil if none is mounted; mounted returns all that are.
	hierarchy func() *hierarchy
	mounted   func() []hierarchy

	mu sync.Mutex
	// paths that were seen, including removed cgroups; "" for an id without a path here.
	paths  map[uint64]string
	kept   int       // bytes of paths
	walked time.Time // when the whole tree was walked last
	// followers are called with each cgroup that is made.
	followers []*func(id uint64)

	host *workload.Host
	// naming guards what was found of workloads.
	naming    sync.Mutex
	workloads map[uint64]*named
	// awaited has a value when a name may come later.
	awaited chan struct{}
}

var errNoCgroups = errors.New("no cgroups are mounted here: mount -t cgroup2 none /sys/fs/cgroup")

// NewCgroups returns an empty table.
func NewCgroups() *Cgroups {
	c := cgroupsOf((&tree{mounted: mountedHere}).get, "/")
	c.mounted = mountedHere
	return c
}

// cgroupsOf returns an empty table of a tree; root has the files with the names of workloads.
func cgroupsOf(tree func() *hierarchy, root string) *Cgroups {
	dir := func(path string) (string, bool) { return tree().dir(path) }
	return &Cgroups{hierarchy: tree, paths: make(map[uint64]string), workloads: make(map[uint64]*named), awaited: make(chan struct{}, 1), host: workload.NewHost(root, dir)}
}

// path returns the path of a directory in the tree.
func (h *hierarchy) path(dir string) (string, bool) {
	below, ok := strings.CutPrefix(dir, h.mount)
	if !ok || below != "" && below[0] != '/' && h.mount != "/" {
		return "", false
	}
	return path.Clean(h.root + "/" + below), true
}

// dir returns the directory of a path.
func (h *hierarchy) dir(p string) (string, bool) {
	if h.root == "/" {
		return filepath.Join(h.mount, p), true
	}
	below, ok := strings.CutPrefix(p, h.root)
	if !ok || below != "" && below[0] != '/' {
		return "", false
	}
	return filepath.Join(h.mount, below), true
}

// Mount returns where the tree of cgroups is mounted, and its controller of cgroup v1, "" for v2; ok is false if none is mounted.
func (c *Cgroups) Mount() (dir, controller string, ok bool) {
	h := c.hierarchy()
	if h == nil {
		return "", "", false
	}
	return h.mount, h.controller, true
}

// Root returns the path of the highest cgroup that is visible here.
func (c *Cgroups) Root() string {
	if h := c.hierarchy(); h != nil {
		return h.root
	}
	return "/"
}

// ID returns the id of the cgroup that has a path now.
func (c *Cgroups) ID(p string) (id uint64, ok bool) {
	h := c.hierarchy()
	if h == nil || !strings.HasPrefix(p, "/") {
		return 0, false
	}
	p = path.Clean(p)
	dir, ok := h.dir(p)
	if !ok {
		return 0, false
	}
	if id, ok = inode(dir); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remember(id, p)
	}
	return id, ok
}

// inode returns the inode of a directory: on 64-bit kernels the id of the cgroup (kernfs_ino, fs/kernfs).
func inode(dir string) (uint64, bool) {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, false
	}
	return s.Ino, true
}

// OfThreads returns the ids of the cgroups of the threads of a process, each once. It fails if one of them has no directory here: in a
// container, or as the process ends.
func (c *Cgroups) OfThreads(pid int) (ids []uint64, err error) {
	h := c.hierarchy()
	if h == nil {
		return nil, errNoCgroups
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
	if err == nil && len(files) == 0 {
		err = unix.ESRCH
	}
	for _, file := range files {
		list, e := os.ReadFile(file)
		if e != nil {
			continue // the thread has ended
		}
		p, ok := h.ofList(string(list))
		if !ok {
			return nil, fmt.Errorf("%s has no line for the tree at %s", file, h.mount)
		}
		id, ok := c.ID(p)
		if !ok {
			return nil, fmt.Errorf("cgroup %s is not visible in this container", p)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// ofList returns the path in the tree from a file like /proc/PID/cgroup: lines of hierarchy, controllers and path, see cgroups(7).
func (h *hierarchy) ofList(list string) (p string, ok bool) {
	for line := range strings.Lines(list) {
		of := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(of) == 3 && slices.Contains(strings.Split(of[1], ","), h.controller) {
			return of[2], true
		}
	}
	return "", false
}

// Hierarchy returns the kernel's number of the tree: 0 is cgroup v2.
func (c *Cgroups) Hierarchy() (int32, error) {
	h := c.hierarchy()
	if h == nil {
		return 0, errNoCgroups
	}
	if h.controller == "" {
		return 0, nil
	}
	list, err := os.ReadFile("/proc/cgroups") // name, hierarchy, …
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(list)) {
		if of := strings.Fields(line); len(of) > 1 && of[0] == h.controller {
			number, err := strconv.ParseInt(of[1], 10, 32)
			return int32(number), err
		}
	}
	return 0, fmt.Errorf("controller %s is missing in /proc/cgroups", h.controller)
}

// Below calls do with the ids of the cgroup that now has a path, and of all below it. It handles each cgroup before it looks inside.
func (c *Cgroups) Below(p string, do func(id uint64) error) error {
	h := c.hierarchy()
	if h == nil {
		return errNoCgroups
	}
	top, ok := h.dir(path.Clean(p))
	if !ok {
		return fmt.Errorf("cgroup %s is not visible in this container", p)
	}
	return filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
		if err != nil && dir == top {
			return err
		}
		if err != nil || !d.IsDir() { // it is gone, or not a cgroup
			return nil
		}
		if id, ok := inode(dir); ok {
			return do(id)
		}
		return nil
	})
}

// Path returns the path of the cgroup with an id, including a removed one that was seen before; "" if it is unknown.
func (c *Cgroups) Path(id uint64) string {
	h := c.hierarchy()
	if h == nil || id == 0 {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, known := c.paths[id]; known {
		return p
	}
	p, err := h.open(id)
	switch {
	case err == nil, errors.Is(err, unix.ESTALE):
		// A removed cgroup does not come back: the kernel never reuses an id.
		c.remember(id, p)
	case time.Since(c.walked) > time.Second:
		// Opening a handle needs CAP_DAC_READ_SEARCH.
		c.walk(h.mount)
		if _, known := c.paths[id]; !known {
			c.remember(id, "")
		}
	}
	return c.paths[id]
}

// Ended reports whether no cgroup has a path now.
func (c *Cgroups) Ended(path string) bool {
	_, there := c.ID(path)
	return !there && c.hierarchy() != nil
}

// maxCgroups bounds how many names are kept, and maxPaths how many bytes of paths: a user who may make cgroups can make long ones.
const maxCgroups, maxPaths = 1 << 17, 16 << 20

func (c *Cgroups) remember(id uint64, p string) {
	if c.kept += len(p); len(c.paths) >= maxCgroups || c.kept > maxPaths {
		c.paths, c.kept = map[uint64]string{}, len(p)
	}
	c.paths[id] = p
}

// walk remembers a directory of cgroups and all below it.
func (c *Cgroups) walk(dir string) {
	h := c.hierarchy()
	if dir == h.mount {
		c.walked = time.Now()
	}
	_ = filepath.WalkDir(dir, func(dir string, d fs.DirEntry, err error) error {
		if err != nil { // it is gone, or not readable
			return nil
		}
		if !d.IsDir() {
			return nil
		}
		if id, ok := inode(dir); ok {
			if p, ok := h.path(dir); ok {
				c.remember(id, p)
			}
		}
		return nil
	})
}

// fileidKernfs is FILEID_KERNFS of include/linux/exportfs.h: the handle is the id.
const fileidKernfs = 0xfe

// open finds a cgroup by its id. The error is ESTALE if it is gone or outside of what is mounted here.
func (h *hierarchy) open(id uint64) (string, error) {
	mount, err := unix.Open(h.mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(mount)
	handle := unix.NewFileHandle(fileidKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(mount, handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	p, ok := h.path(dir)
	if found, there := inode(dir); !ok || !there || found != id {
		return "", unix.ESTALE
	}
	return p, nil
}

// Watch remembers the names of all cgroups, and of new ones until ctx ends, so that they are known after the cgroups are removed. Without
// it a cgroup must exist when it is first looked up.
func (c *Cgroups) Watch(ctx context.Context) error {
	h := c.hierarchy()
	if h == nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch cgroups: %w", err)
	}
	w := &cgroupWatch{Cgroups: c, fd: fd, events: os.NewFile(uintptr(fd), "inotify"), dirs: make(map[int32]string)}
	if err := w.add(h.mount); err != nil {
		return errors.Join(err, w.events.Close())
	}
	context.AfterFunc(ctx, func() { w.events.Close() })
	go w.follow()
	go c.lookAgain(ctx)
	return nil
}

// cgroupWatch follows the creation of directories.
type cgroupWatch struct {
	*Cgroups
	fd     int
	events *os.File
	dirs   map[int32]string // by the number of the watch
}

// add watches a directory, then remembers it and adds those in it: a directory made meanwhile is seen by the watch or by the listing.
func (w *cgroupWatch) add(dir string) error {
	n, err := unix.InotifyAddWatch(w.fd, dir, unix.IN_CREATE|unix.IN_ONLYDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil // it is gone
	}
	if err != nil {
		return fmt.Errorf("watch cgroups: %s: %w", dir, err)
	}
	w.dirs[int32(n)] = dir
	if id, ok := inode(dir); ok {
		if p, ok := w.hierarchy().path(dir); ok {
			w.mu.Lock()
			w.remember(id, p)
			w.mu.Unlock()
			w.report(id)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // as above
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := w.add(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow reads the events until the file is closed, or until there are more directories than inotify may watch.
func (w *cgroupWatch) follow() {
	defer w.events.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := w.events.Read(buffer)
		if err != nil {
			return
		}
		for events := buffer[:n]; len(events) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			size := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events))
			name := unix.ByteSliceToString(events[unix.SizeofInotifyEvent:size])
			events = events[size:]
			dir := w.dirs[watch]
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				dir, name = w.hierarchy().mount, ""
			case mask&unix.IN_IGNORED != 0: // the directory is gone
				delete(w.dirs, watch)
				continue
			case dir == "" || mask&unix.IN_ISDIR == 0:
				continue
			}
			if w.add(filepath.Join(dir, name)) != nil {
				return
			}
		}
	}
}

// CgroupUnknown is CGROUP_UNKNOWN of trace.h.
const CgroupUnknown = 0xff

// ControllerNumber returns the number of a controller of cgroup v1, from 1; CgroupUnknown if the kernel does not describe it.
func (k *Kernel) ControllerNumber(controller string) byte {
	t, err := k.Type(Module{}, &btf.Enum{Name: "cgroup_subsys_id"})
	numbers, ok := t.(*btf.Enum)
	if err != nil || !ok {
		return CgroupUnknown
	}
	for _, c := range legacyControllers {
		i := slices.IndexFunc(numbers.Values, func(v btf.EnumValue) bool { return c.name == controller && v.Name == c.id })
		if i >= 0 {
			return byte(numbers.Values[i].Value + 1)
		}
	}
	return CgroupUnknown
}

//go:build linux

package kernel

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	// mount is where it is mounted, and root which part of the tree: / except in some containers.
	mount, root string
	// controller of cgroup v1, one of legacyControllers; "" for cgroup v2.
	controller string
}

// legacyControllers of cgroup v1, with their names in the kernel's enum cgroup_subsys_id. The first are those in whose trees most tasks
// have their own place.
var legacyControllers = []struct{ name, id string }{
	{"memory", "memory_cgrp_id"}, {"pids", "pids_cgrp_id"}, {"cpu", "cpu_cgrp_id"}, {"cpuacct", "cpuacct_cgrp_id"},
	{"blkio", "io_cgrp_id"}, {"devices", "devices_cgrp_id"}, {"freezer", "freezer_cgrp_id"}, {"cpuset", "cpuset_cgrp_id"},
	{"net_cls", "net_cls_cgrp_id"}, {"perf_event", "perf_event_cgrp_id"}, {"hugetlb", "hugetlb_cgrp_id"}, {"rdma", "rdma_cgrp_id"},
}

// tree is the hierarchy that is used. Once it is chosen it stays: programs read the ids of that one.
type tree struct {
	mounted func() []hierarchy

	mu     sync.Mutex
	chosen *hierarchy
	asked  time.Time
}

// lookAfter is how long it takes until a tree that is mounted later is noticed.
const lookAfter = time.Second

// get returns nil if none is mounted. One of cgroup v2 may be mounted later: without any, programs read the ids of that.
func (t *tree) get() *hierarchy {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.chosen != nil || time.Since(t.asked) < lookAfter {
		return t.chosen
	}
	all := t.mounted()
	if !t.asked.IsZero() {
		all = slices.DeleteFunc(all, func(h hierarchy) bool { return h.controller != "" })
	}
	t.chosen, t.asked = chooseHierarchy(all), time.Now()
	return t.chosen
}

// Overtaken reports whether the tree of cgroup v2 at dir is in use by now, although a tree of cgroup v1 is shown, as it was
// not at first.
func (c *Cgroups) Overtaken() (dir string, is bool) {
	h := c.hierarchy()
	if h == nil || h.controller == "" {
		return "", false
	}
	if best := chooseHierarchy(c.mounted()); best != nil && best.controller == "" {
		return best.mount, true
	}
	return "", false
}

// mountedHere returns the hierarchies that are mounted in this process's namespace.
func mountedHere() []hierarchy {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	return mountedHierarchies(f)
}

// mountedHierarchies reads a mountinfo file, see proc(5).
func mountedHierarchies(mountinfo io.Reader) []hierarchy {
	var found []hierarchy
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		// 31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw
		mount, filesystem, _ := strings.Cut(lines.Text(), " - ")
		m, f := strings.Fields(mount), strings.Fields(filesystem)
		if len(m) < 5 || len(f) < 3 {
			continue
		}
		h := hierarchy{mount: unescapeMount(m[4]), root: unescapeMount(m[3])}
		switch f[0] {
		case "cgroup2":
			found = append(found, h)
		case "cgroup":
			options := strings.Split(f[2], ",")
			for _, c := range legacyControllers {
				if slices.Contains(options, c.name) {
					h.controller = c.name
					found = append(found, h)
					break
				}
			}
		}
	}
	return found
}

// unescapeMount undoes what the kernel does to blanks in mountinfo (mangle, fs/seq_file.c).
func unescapeMount(name string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}

// chooseHierarchy returns the tree in which the tasks of this host have their places. That is cgroup v2 wherever it is in use; on a host
// with cgroup v1 it may be mounted as well, with every task in its root.
func chooseHierarchy(mounted []hierarchy) *hierarchy {
	var best *hierarchy
	rank := func(h hierarchy) int {
		if h.controller == "" {
			if h.hasChildren() {
				return -1
			}
			return len(legacyControllers)
		}
		return slices.IndexFunc(legacyControllers, func(c struct{ name, id string }) bool { return c.name == h.controller })
	}
	for _, h := range mounted {
		if best == nil || rank(h) < rank(*best) {
			best = &h
		}
	}
	return best
}

func (h hierarchy) hasChildren() bool {
	entries, err := os.ReadDir(h.mount)
	return err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}

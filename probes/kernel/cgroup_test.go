package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// treeOf makes a tree of cgroups of a folder, whose inodes are the ids.
func treeOf(h hierarchy) *Cgroups {
	return cgroupsOf(func() *hierarchy { return &h }, "/none")
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func idOf(t *testing.T, dir string) uint64 {
	t.Helper()
	id, ok := inode(dir)
	if !ok {
		t.Fatalf("no folder %s", dir)
	}
	return id
}

func TestCgroupPaths(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "system.slice", "a b.service")
	mkdirs(t, deep)
	for prefix, c := range map[string]*Cgroups{
		"":            treeOf(hierarchy{mount: root, root: "/"}),
		"/docker/abc": treeOf(hierarchy{mount: root, root: "/docker/abc"}), // a container without a namespace of cgroups
	} {
		for dir, below := range map[string]string{root: "", filepath.Dir(deep): "/system.slice", deep: "/system.slice/a b.service"} {
			p := prefix + below
			if p == "" {
				p = "/"
			}
			if id, ok := c.ID(p); !ok || id != idOf(t, dir) {
				t.Errorf("%q is %d, %v", p, id, ok)
			}
			if got := c.Path(idOf(t, dir)); got != p {
				t.Errorf("path of %s is %q, want %q", dir, got, p)
			}
		}
	}
	c := treeOf(hierarchy{mount: root, root: "/docker/abc"})
	for _, p := range []string{"", "system.slice", "/system.slice", "/docker/abcd", "/docker/abc/none"} {
		if id, ok := c.ID(p); ok {
			t.Errorf("%q is %d", p, id)
		}
	}
	if p := c.Path(0); p != "" {
		t.Errorf("0 is %q", p)
	}
}

// A name that was seen is known when the cgroup is gone. Watch sees all names.
func TestCgroupsThatEnd(t *testing.T) {
	root := t.TempDir()
	old, young, inside := filepath.Join(root, "old"), filepath.Join(root, "young"), filepath.Join(root, "young", "inside")
	mkdirs(t, old)
	c := treeOf(hierarchy{mount: root, root: "/"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := c.Watch(ctx); err != nil {
		t.Fatal(err)
	}
	mkdirs(t, young)
	mkdirs(t, inside)
	ids := map[string]uint64{"/old": idOf(t, old), "/young": idOf(t, young), "/young/inside": idOf(t, inside)}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		known := len(c.paths)
		c.mu.Unlock()
		if known == 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d names are known after 10 s", known)
		}
	}
	for p := range ids {
		if c.Ended(p) {
			t.Errorf("%s has ended", p)
		}
	}
	for _, dir := range []string{inside, young, old} {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	for p, id := range ids {
		if got := c.Path(id); got != p {
			t.Errorf("%d is %q, want %q", id, got, p)
		}
		if !c.Ended(p) {
			t.Errorf("%s has not ended", p)
		}
	}
}

// TestManyPaths: whoever may make cgroups chooses how many there are, and how long their paths are.
func TestManyPaths(t *testing.T) {
	c := &Cgroups{paths: map[uint64]string{}}
	long := strings.Repeat("a", 4000)
	most := 0
	for id := range uint64(10_000) {
		c.remember(id, long+strconv.Itoa(int(id)))
		bytes := 0
		if id%100 == 0 || len(c.paths) < 2 {
			for _, p := range c.paths {
				bytes += len(p)
			}
		}
		most = max(most, bytes)
		if c.paths[id] == "" {
			t.Fatalf("the last path, of %d, is not known", id)
		}
	}
	if most > maxPaths || most < maxPaths*9/10 {
		t.Errorf("%d bytes were kept, at most %d may be", most, maxPaths)
	}
	for id := range uint64(maxCgroups + 10) {
		c.remember(id, "a")
	}
	if len(c.paths) > maxCgroups {
		t.Errorf("%d paths", len(c.paths))
	}
}

func TestHierarchies(t *testing.T) {
	used, unused := t.TempDir(), t.TempDir()
	mkdirs(t, filepath.Join(used, "system.slice"))
	v1 := func(name string) string {
		return "33 31 0:30 / /sys/fs/cgroup/" + name + " rw,relatime shared:9 - cgroup cgroup rw," + name + "\n"
	}
	v2 := func(dir string) string { return fmt.Sprintf("41 31 0:38 / %s rw,relatime - cgroup2 cgroup2 rw\n", dir) }
	for name, test := range map[string]struct{ mounts, mount, controller string }{
		"v2":                   {v2(used), used, ""},
		"v2, no cgroups":       {v2(unused), unused, ""},
		"v1":                   {v1("cpuset") + v1("memory") + v1("pids"), "/sys/fs/cgroup/memory", "memory"},
		"v1, no memory":        {v1("cpuset") + v1("pids"), "/sys/fs/cgroup/pids", "pids"},
		"v1, joint":            {v1("cpu,cpuacct"), "/sys/fs/cgroup/cpu,cpuacct", "cpu"},
		"hybrid":               {v1("memory") + v2(used), used, ""},
		"hybrid, v2 is unused": {v1("memory") + v2(unused), "/sys/fs/cgroup/memory", "memory"},
		"no controller":        {"40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n", "", ""},
		"garbage":              {"\x00 - cgroup\n - \n", "", ""},
	} {
		h := chooseHierarchy(mountedHierarchies(strings.NewReader(test.mounts)))
		if h == nil {
			h = &hierarchy{}
		}
		if h.mount != test.mount || h.controller != test.controller {
			t.Errorf("%s: %+v, want %s %s", name, h, test.mount, test.controller)
		}
	}
}

// A process is in the cgroups of its threads, in the tree whose controller is used. One that has ended is in none.
func TestOfThreads(t *testing.T) {
	c := NewCgroups()
	if _, _, ok := c.Mount(); !ok {
		t.Skip("no cgroups are mounted")
	}
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := c.hierarchy().ofList(string(list))
	if !ok {
		t.Fatalf("no line of %q is for the tree", list)
	}
	id, ok := c.ID(p)
	if !ok {
		t.Skipf("cgroup %s is not visible here", p)
	}
	if ids, err := c.OfThreads(os.Getpid()); err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("%v, %v; want %d", ids, err, id)
	}
	if ids, err := c.OfThreads(1 << 30); err == nil {
		t.Errorf("a process that does not exist is in %v", ids)
	}
	const both = "12:pids:/v1\n4:cpu,cpuacct:/a b:c\n1:name=systemd:/named\n0::/v2\n"
	for controller, want := range map[string]string{"": "/v2", "cpu": "/a b:c", "pids": "/v1", "memory": ""} {
		if p, ok := (&hierarchy{controller: controller}).ofList(both); p != want || ok != (want != "") {
			t.Errorf("with %q: %q, %v; want %q", controller, p, ok, want)
		}
	}
	missing := treeOf(hierarchy{mount: t.TempDir(), root: "/", controller: "memory"})
	if _, err := missing.OfThreads(os.Getpid()); err == nil || !strings.Contains(err.Error(), " has no line for the tree at ") && !strings.Contains(err.Error(), "is not visible in this container") {
		t.Errorf("without a line for the tree: %v", err)
	}
}

// A tree of cgroup v2 that is mounted later is used, if none was chosen before; and it is noticed that one is filled, if another one was.
func TestTreeLater(t *testing.T) {
	v1 := hierarchy{mount: t.TempDir(), root: "/", controller: "memory"}
	v2 := hierarchy{mount: t.TempDir(), root: "/"}
	var mounted []hierarchy
	here := func() []hierarchy { return slices.Clone(mounted) }
	late := &tree{mounted: here}
	expect := func(h *hierarchy, want *hierarchy) {
		t.Helper()
		if (h == nil) != (want == nil) || h != nil && *h != *want {
			t.Errorf("%+v, want %+v", h, want)
		}
	}
	expect(late.get(), nil)
	mounted = []hierarchy{v1, v2}
	expect(late.get(), nil) // it has just looked
	late.asked = time.Now().Add(-lookAfter)
	expect(late.get(), &v2) // programs without a tree read the ids of this one

	early := &tree{mounted: here}
	expect(early.get(), &v1)
	c := cgroupsOf(early.get, "/none")
	c.mounted = here
	if dir, is := c.Overtaken(); is {
		t.Errorf("an empty tree at %s is in use", dir)
	}
	if err := os.Mkdir(v2.mount+"/system.slice", 0o700); err != nil {
		t.Fatal(err)
	}
	if dir, is := c.Overtaken(); !is || dir != v2.mount {
		t.Errorf("the tree at %q is in use: %t", dir, is)
	}
	expect(early.get(), &v1)
	c.hierarchy = late.get
	if dir, is := c.Overtaken(); is {
		t.Errorf("the tree at %s is shown already", dir)
	}
}

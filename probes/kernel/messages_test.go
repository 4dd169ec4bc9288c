//go:build linux

package kernel

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"trace/probes/filetest"
)

// What is missing on a host is named, with what to do.
func TestMessages(t *testing.T) {
	dir := t.TempDir()
	mkdirs(t, filepath.Join(dir, "events", "a", "b", "format"))
	noTree := &Cgroups{hierarchy: func() *hierarchy { return nil }}
	tree := treeOf(hierarchy{mount: dir, root: "/"})
	_, v1Err := treeOf(hierarchy{mount: dir, root: "/", controller: "nonesuch"}).Hierarchy()
	_, treeErr := noTree.Hierarchy()
	_, unmounted := readFormat("", "a/b")
	_, unreadable := readFormat(dir, "a/b")
	_, noFields := parseFormat("format:\n")
	_, noCaps := capEffOf("Name:\ttrace\n")
	_, noImage := newImage([]byte("this is no BTF"), nil)
	_, badKind := (&image{done: map[uint32]btf.Type{}}).qualified(btfType{info: kindVar << 24}, "x")
	for _, test := range []struct {
		err  error
		want string
	}{
		{treeErr, "no cgroups are mounted here: mount -t cgroup2 none /sys/fs/cgroup"},
		{noTree.Below("/", nil), "no cgroups are mounted here: mount -t cgroup2 none /sys/fs/cgroup"},
		{v1Err, "controller nonesuch is missing in /proc/cgroups"},
		{filetest.With(t, 0, func() error { return tree.Watch(context.Background()) }), "watch cgroups: too many open files"},
		{(&cgroupWatch{Cgroups: tree, fd: -1}).add("/"), "watch cgroups: /: bad file descriptor"},
		{unmounted, "tracefs is not mounted or not readable (mount -t tracefs tracefs /sys/kernel/tracing)"},
		{unreadable, "tracefs: read " + dir + "/events/a/b/format: is a directory"},
		{noFields, "no fields"},
		{noCaps, "/proc/self/status: no CapEff"},
		{noImage, "not the BTF of a kernel"},
		{badKind, "not the BTF of a kernel: kind 14 inside a type"},
	} {
		if test.err == nil || test.err.Error() != test.want {
			t.Errorf("%v, want %s", test.err, test.want)
		}
	}
}

// Without symbols nobody knows whether a function is there.
func TestUnreadableSymbols(t *testing.T) {
	k := &Kernel{}
	k.taken.Store(&taken{symbols: func() (map[string]bool, error) { return nil, errors.New("permission denied") }})
	if _, err := k.isSymbol("vfs_read"); err == nil || !strings.HasPrefix(err.Error(), "symbols of the kernel: permission denied") {
		t.Error(err)
	}
}

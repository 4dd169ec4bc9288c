//go:build !vm

package probes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The set has a cgroup, what is below it, and what is made there, while it exists; its siblings, even with the same name, and
// what is made in another tree are not in it.
func TestCgroupsBelow(t *testing.T) {
	h := detect(t)
	mount, _, ok := h.catalog.cgroups.Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	top := filepath.Join(mount, fmt.Sprintf("trace-below-%d", os.Getpid()))
	id := func(dir string) uint64 {
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(top, dir), &s); err != nil {
			t.Fatal(err)
		}
		return s.Ino
	}
	made := []string{"", "/one", "/one/deep", "/oneself", "/other"}
	t.Cleanup(func() {
		for _, dir := range []string{"/oneself/deep", "/oneself", "/one/deep/later", "/one/deep", "/one/later", "/one", "/other", ""} {
			os.Remove(top + dir)
		}
	})
	for _, dir := range made {
		err := os.Mkdir(top+dir, 0o755)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			t.Skipf("needs root, and cgroups that can be written to: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.settle("/" + filepath.Base(top) + "/one")
	requirePermitted(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"/one/later", "/one/deep/later", "/oneself/deep"} {
		if err := os.Mkdir(top+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	has := func(id uint64) bool {
		var member answer
		err := s.members.Lookup(id, &member)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	for dir, want := range map[string]bool{
		"": false, "/one": true, "/one/deep": true, "/one/later": true, "/one/deep/later": true, "/oneself": false, "/oneself/deep": false, "/other": false,
	} {
		if has(id(dir)) != want {
			t.Errorf("%q: %v, want %v", dir, !want, want)
		}
	}
	gone := id("/one/later")
	if err := os.Remove(top + "/one/later"); err != nil {
		t.Fatal(err)
	}
	for range 200 { // until nothing refers to it
		if !has(gone) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if has(gone) || !has(id("/one/deep/later")) {
		t.Errorf("the one that was removed: %v, the other: %v", has(gone), has(id("/one/deep/later")))
	}
	if n, err := s.skipped(); n != 0 || err != nil {
		t.Errorf("skipped %d, %v", n, err)
	}
}

// A cgroup that is not there is an error.
func TestNoCgroupBelow(t *testing.T) {
	h := detect(t)
	if _, _, ok := h.catalog.cgroups.Mount(); !ok {
		t.Skip("needs cgroups to be mounted")
	}
	s, err := h.settle("/no/such/cgroup")
	if err == nil {
		s.close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		requirePermitted(t, err)
		t.Errorf("%v", err)
	}
}

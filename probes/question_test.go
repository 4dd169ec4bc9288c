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

	"golang.org/x/sys/unix"
)

// The kernel has the answer for each cgroup. A new one has the answer of the one above it until user space answers, and a removed one none.
func TestAnswers(t *testing.T) {
	h := detect(t)
	mount, _, ok := h.catalog.cgroups.Mount()
	if !ok {
		t.Skip("needs cgroups to be mounted, like mount -t cgroup2 none /sys/fs/cgroup")
	}
	name := fmt.Sprintf("trace-answers-%d", os.Getpid())
	dir := func(of string) string { return filepath.Join(mount, name+of) }
	id := func(of string) uint64 {
		id, _ := h.catalog.cgroups.ID("/" + name + of)
		return id
	}
	t.Cleanup(func() {
		for _, of := range []string{"/late", "/new", ""} {
			os.Remove(dir(of))
		}
	})
	err := os.Mkdir(dir(""), 0o755)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skipf("needs root, and cgroups that can be written to: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	here := id("")
	question := func(of uint64) (yes, known bool) {
		return of == here, of == here || filepath.Base(h.catalog.cgroups.Path(of)) == "late"
	}
	a, err := h.answer(question)
	requirePermitted(t, err)
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	check := func(of string, want answer) {
		t.Helper()
		var got answer
		for range 3000 {
			if err := a.members.Lookup(id(of), &got); err == nil && got == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%q: %v, want %v", of, got, want)
	}
	check("", answer{1, 1})
	if err := a.members.Lookup(uint64(0), new(answer)); err != nil {
		t.Errorf("an event without a cgroup: %v", err)
	}
	if err := os.Mkdir(dir("/new"), 0o755); err != nil { // nobody watches yet
		t.Fatal(err)
	}
	check("/new", answer{1, 1})
	if err := h.catalog.cgroups.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("/new", answer{0, 0}) // it was found when the watch began
	if err := os.Mkdir(dir("/late"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("/late", answer{0, 1})
	gone := id("/late")
	if err := os.Remove(dir("/late")); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if a.members.Lookup(gone, new(answer)) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.correct(gone)
	if a.members.Lookup(gone, new(answer)) == nil {
		t.Error("the one that was removed has an answer")
	}
}

//go:build linux

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"testing"
)

// A follower of some processes is attached to these alone: to one that becomes one of them when the choice is reviewed, and to one that a known
// process has forked. It is detached from a process that has ended.
func TestFollowAmong(t *testing.T) {
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	memory := newContext(device(t), uint64(reflect.ValueOf(TestFollowAmong).Pointer()))
	self, wanted := os.Getpid(), make(map[int]bool)
	a := &attachments{open: make(map[string]int)}
	w, err := f.Follow("post_send", func(pid int) bool { return wanted[pid] }, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	lookAll(t, f)
	if a.number() != 0 || len(notes) != 0 {
		t.Errorf("%v is attached though no process is wanted; it reports %q", a.open, notes)
	}
	of := func(pid int) (n int) {
		for at, open := range a.open {
			var by int
			if fmt.Sscan(at, &by); by == pid {
				n += open
			}
		}
		return n
	}

	wanted[self] = true
	for range 2 {
		f.Review()
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("verbs: %s is followed from now on, as process %d uses it", path, self); a.number() != 1 || of(self) != 1 || !slices.Equal(notes, []string{want}) {
		t.Errorf("%v is attached, want the function of %d; it reports %q, want %q", a.open, self, notes, want)
	}

	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	if f.Review(); a.number() != 1 {
		t.Errorf("%v is attached, and the child is not wanted", a.open)
	}
	wanted[child.Process.Pid] = true
	if f.Review(); a.number() != 2 || of(child.Process.Pid) != 1 {
		t.Errorf("%v is attached, want the function of the child %d, too", a.open, child.Process.Pid)
	}
	child.Process.Kill()
	child.Wait()
	if f.Review(); a.number() != 1 || of(self) != 1 {
		t.Errorf("%v is attached after the child has ended", a.open)
	}

	if late, err := f.Follow("post_send", func(pid int) bool { return pid == self }, a.attach); err != nil || a.number() != 2 {
		t.Errorf("with another follower %v is attached: %v", a.open, err)
	} else if err := late.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil || a.number() != 0 {
		t.Errorf("at the end %v is attached: %v", a.open, err)
	}
	_ = memory[0]
}

// What cannot be attached for a process is reported once, and tried again when the choice is reviewed.
func TestFollowAmongRefused(t *testing.T) {
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	a := &attachments{open: make(map[string]int), fail: true}
	w, err := f.Follow("poll_cq", func(pid int) bool { return pid == os.Getpid() }, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	memory := newContext(device(t), uint64(reflect.ValueOf(TestFollowAmong).Pointer()))
	lookInto(f, os.Getpid())
	f.Review()
	if want := fmt.Sprintf("verbs: poll_cq of process %d is not followed: refused", os.Getpid()); !slices.Equal(notes, []string{want}) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	a.fail = false
	if f.Review(); a.number() != 1 {
		t.Errorf("then %v is attached", a.open)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	_ = memory[0]
}

// The children of a process are found until they end.
func TestChildrenOf(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if all, asked := childrenOf(os.Getpid(), mostThreads); asked == 0 || !slices.Contains(all, child.Process.Pid) {
		t.Errorf("%v lacks %d", all, child.Process.Pid)
	}
	child.Process.Kill()
	child.Wait()
	if all, asked := childrenOf(os.Getpid(), 1); asked != 1 || slices.Contains(all, os.Getpid()) {
		t.Errorf("%d threads were asked, want 1", asked)
	}
	if all, _ := childrenOf(os.Getpid(), mostThreads); slices.Contains(all, child.Process.Pid) {
		t.Errorf("%v has %d, which has ended", all, child.Process.Pid)
	}
}

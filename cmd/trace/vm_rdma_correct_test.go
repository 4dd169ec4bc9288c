//go:build vm

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hideModuleTypes leaves the kernel's own types only, so that functions of modules are traced by kprobes.
func hideModuleTypes(t *testing.T) {
	t.Helper()
	sh(t, "cp /sys/kernel/btf/vmlinux /tmp/vmlinux.btf; mount -t tmpfs none /sys/kernel/btf; cp /tmp/vmlinux.btf /sys/kernel/btf/vmlinux")
	t.Cleanup(func() { sh(t, "umount /sys/kernel/btf; rm /tmp/vmlinux.btf") })
}

// objectsOf is how many objects a process has.
func objectsOf(t *testing.T, cmd *exec.Cmd) (n int64) {
	t.Helper()
	_, owners := kernelObjects(t)
	for key, objects := range owners {
		if strings.HasPrefix(key, fmt.Sprint(cmd.Process.Pid, " ")) {
			n += objects
		}
	}
	if n > 0 && unlistedContexts() {
		n++
	}
	return n
}

// What the kernel skips is corrected by its own list, and a note reports it: objects that come and go while the kernel runs no kprobe. In
// the kernel and in user space totals are what rdma res shows, also at the end.
func TestVMRdmaCorrected(t *testing.T) {
	hideModuleTypes(t)
	kprobes := func(on int) { sh(t, "echo %d > /sys/kernel/debug/kprobes/enabled", on) }
	t.Cleanup(func() { kprobes(1) })
	for _, flags := range [][]string{nil, {"--no-kernel"}} {
		t.Run("flags "+strings.Join(flags, " "), func(t *testing.T) {
			goes := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50")
			stays := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50", "-p", "18611")
			trace := start(t, append(flags, resourceProgram)...)
			if said := trace.messages(t); !strings.Contains(said, "rdma:resource kprobe") {
				t.Fatalf("not traced by kprobes:\n%s", said)
			}
			trace.agree(t, "at the start")
			gone := objectsOf(t, goes)
			kprobes(0)
			goes.Process.Kill()
			goes.Wait()
			comes := background(t, 1, "ibv_srq_pingpong", "-d", "rxe0", "-g", "1", "-p", "18600")
			come := objectsOf(t, comes)
			time.Sleep(2 * time.Second) // comparisons that no program sees report nothing wrong
			kprobes(1)
			want := fmt.Sprintf("rdma:resource: %d objects corrected by the kernel's own list", gone+come)
			trace.waitToSay(t, want)
			trace.agree(t, "after the kernel has skipped all of it")
			stays.Process.Kill()
			stays.Wait()
			trace.agree(t, "after one that was known has gone")
			comes.Process.Kill()
			comes.Wait()
			seen := trace.agree(t, "after one that was corrected has gone")
			for key, n := range seen {
				if n < 0 {
					t.Errorf("%s: %d", key, n)
				}
			}
			trace.end(t)
			if said := trace.messages(t); !strings.Contains(said, want) {
				t.Errorf("want %q in:\n%s", want, said)
			}
		})
	}
}

// The events of a correction are marked, and pass the filter like any other: those that it rejects are counted. What nothing has corrected
// before is corrected at the end.
func TestVMRdmaCorrectedEvents(t *testing.T) {
	hideModuleTypes(t)
	kprobes := func(on int) { sh(t, "echo %d > /sys/kernel/debug/kprobes/enabled", on) }
	t.Cleanup(func() { kprobes(1) })
	goes := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50")
	stays := background(t, 0, "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "50", "-p", "18611")
	trace := start(t, "rdma:resource / type == QP && owner.comm startsWith \"ibv\" /")
	gone := objectsOf(t, goes)
	kprobes(0)
	goes.Process.Kill()
	goes.Wait()
	kprobes(1)
	trace.end(t)
	events := trace.decoded(t)
	var corrected []jsonEvent
	for _, e := range events {
		if e.at("corrected") == true {
			corrected = append(corrected, e)
		}
	}
	if len(events) != 3 || len(corrected) != 1 || corrected[0].num(t, "delta") != -1 || corrected[0].num(t, "owner.pid") != int64(goes.Process.Pid) ||
		corrected[0].at("seeded") != false || corrected[0].text("dev") != "rxe0" {
		t.Errorf("want the QPs of %d and %d, and that the first has gone: %v", goes.Process.Pid, stays.Process.Pid, events)
	}
	said := trace.messages(t)
	if want := fmt.Sprintf("rdma:resource: %d objects corrected by the kernel's own list (their events were skipped)", gone); !strings.Contains(said, want) {
		t.Errorf("want %q in:\n%s", want, said)
	}
	counts := regexp.MustCompile(`rdma:resource: (\d+) seen, 3 printed, (\d+) rejected, 0 lost`).FindStringSubmatch(said)
	if counts == nil {
		t.Fatalf("no counts in:\n%s", said)
	}
	seen, _ := strconv.Atoi(counts[1])
	rejected, _ := strconv.Atoi(counts[2])
	if seen != rejected+3 || int64(rejected) < 3*(gone-1) {
		t.Errorf("%d seen, %d rejected: of %d objects that have gone all but the QP have to be", seen, rejected, gone)
	}
}

// waitToSay waits until trace has printed a message.
func (tr *recorder) waitToSay(t *testing.T, text string) {
	t.Helper()
	for range 1200 {
		if strings.Contains(tr.messages(t), text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	data, _ := os.ReadFile(tr.events)
	t.Fatalf("trace does not report %q:\n%s%s", text, tr.messages(t), data[max(0, len(data)-2000):])
}

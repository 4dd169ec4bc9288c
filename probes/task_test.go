package probes

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
)

// ofTask are the common fields to which only types of the kernel lead.
var ofTask = []string{"ppid", "pgid", "pidns", "pcomm"}

func fieldsNamed(p *event.Probe, names ...string) (fields []*event.Field) {
	for _, name := range names {
		fields = append(fields, p.Field(name))
	}
	return fields
}

// kin are the values of the fields of a task as /proc has them.
func kin(t *testing.T, pid int) snapshot {
	t.Helper()
	read := func(format string, args ...any) string {
		data, err := os.ReadFile(fmt.Sprintf(format, args...))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	stat := read("/proc/%d/stat", pid)
	of := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // state, ppid, pgrp
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot{"ppid": of[1], "pgid": of[2], "pidns": strings.Trim(ns, "pid:[]"), "pcomm": read("/proc/%s/comm", of[1])}
}

// inGroup starts a shell that runs a command on demand, in a process group of its own, and in a pid namespace of its own if it is
// so asked for.
func inGroup(t *testing.T, namespace bool, command string) job {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo ready; read go; "+command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if namespace {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	in, out := startPiped(t, cmd)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return job{pid: cmd.Process.Pid, run: func() {
		fmt.Fprintln(in, "go")
		_ = cmd.Wait() // whether the command succeeds does not matter
	}}
}

// The fields of a task agree with /proc, in the namespace of the host and in another one.
func TestOfTask(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make a pid namespace")
	}
	checkOfTask(t, "syscall:*", "exec true")
}

// checkOfTask compares the fields of the events of a command, which runs in the shell's process.
func checkOfTask(t *testing.T, probes, command string) {
	t.Helper()
	h := detect(t)
	for _, p := range h.catalog.Match(probes) {
		for _, namespace := range []bool{false, true} {
			j := inGroup(t, namespace, command)
			want := kin(t, j.pid)
			events := collect(t, attachWants(t, h, wantOf(p, j.pid)), j.run)
			if len(events) == 0 {
				t.Errorf("%s: no events", p)
			}
			for _, e := range events {
				for name, value := range want {
					if e[name] != value {
						t.Fatalf("%s, namespace %v: %s is %s, want %s", p, namespace, name, e[name], value)
					}
				}
			}
		}
	}
}

func wantOf(p *event.Probe, pid int) want {
	return want{probe: p, fields: fieldsNamed(p, ofTask...), pid: pid}
}

// Without the types of a task, its fields are absent, and all others are present.
func TestTasksUndescribed(t *testing.T) {
	h, err := newHost(load(t), kernel.Options{Types: func() (*btf.Spec, error) { return nil, kernel.ErrNoBTF }})
	if err != nil {
		t.Fatal(err)
	}
	p := h.catalog.Match("syscall:enter")[0]
	j := waiting(t)
	s := attachWants(t, h, want{probe: p, fields: p.Fields, pid: j.pid})
	events := collect(t, s, j.run)
	if len(events) == 0 || events[0]["pid"] != fmt.Sprint(j.pid) {
		t.Fatalf("events %v", events)
	}
	for _, name := range ofTask {
		if events[0][name] != "-" {
			t.Errorf("%s is %s", name, events[0][name])
		}
	}
	if notes := s.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "switches are absent: "+kernel.ErrNoBTF.Error()) {
		t.Errorf("notes %q", notes)
	}
}

// A task whose parent is a thread, and no leader, is the child of the process.
func TestParentOfThread(t *testing.T) {
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	started, done := make(chan job), make(chan struct{})
	defer close(done)
	var begin func()
	begin = func() {
		runtime.LockOSThread() // and ends with a thread of that name
		if unix.Gettid() == os.Getpid() {
			go begin() // on another thread, while this goroutine keeps the leader
			<-done
			runtime.UnlockOSThread()
			return
		}
		if err := os.WriteFile("/proc/thread-self/comm", []byte("no leader"), 0); err != nil {
			t.Error(err)
		}
		started <- waiting(t)
		<-done
	}
	go begin()
	j := <-started
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	events := collect(t, attachWants(t, h, wantOf(p, j.pid)), j.run)
	if len(events) == 0 || events[0]["pcomm"] != strings.TrimSpace(string(name)) || events[0]["ppid"] != fmt.Sprint(os.Getpid()) {
		t.Errorf("%v, want %d of %s", events, os.Getpid(), name)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// toolLimit ends a tool that hangs.
const toolLimit = 2 * time.Minute

// A tool is a command that traces until a signal ends it. When it is attached it prints "Attached N probes" on standard error.
type tool struct {
	name  string
	path  string
	root  string   // root folder in which it runs, "" for this machine's
	flags []string // before the program
}

// tracePeer is the binary of trace.
func tracePeer(path string) (tool, peer) {
	t := tool{name: "trace", path: path}
	return t, t.peer(func(w workload) string { return w.trace })
}

// recordingPeer is trace record, which writes to a file.
func recordingPeer(path, file string) peer {
	t := tool{name: "trace", path: path, flags: []string{"record", "--force", "-o", file}}
	return t.peer(func(w workload) string { return w.trace })
}

// bpftracePeer is bpftrace in a root folder of its own, with /sys, /proc and /dev mounted.
func bpftracePeer(root string) (tool, peer) {
	t := tool{name: "bpftrace", path: "/usr/bin/bpftrace", root: root, flags: []string{"-e"}}
	return t, t.peer(func(w workload) string { return w.bpftrace })
}

func (t tool) peer(program func(workload) string) peer {
	return peer{name: t.name, program: program, attach: func(ctx context.Context, program string, output io.Writer) (attached, error) {
		return t.start(ctx, program, output)
	}}
}

// version returns the line that the tool prints about itself.
func (t tool) version(ctx context.Context) (string, error) {
	out, err := t.command(ctx, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run %s --version: %w", t.name, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

func (t tool) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.path, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: t.root}
	return cmd
}

// running is a tool that is attached.
type running struct {
	name   string
	cmd    *exec.Cmd
	cancel context.CancelFunc
	start  time.Duration // until it was attached
	said   *watcher
	ended  chan error
}

// start runs a tool and returns once it is attached.
func (t tool) start(ctx context.Context, program string, output io.Writer) (attached, error) {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	r := &running{
		name:   t.name,
		cmd:    t.command(ctx, append(slices.Clone(t.flags), program)...),
		cancel: cancel,
		said:   newWatcher(),
		ended:  make(chan error, 1),
	}
	r.cmd.Stdout, r.cmd.Stderr = output, r.said
	begin := time.Now()
	if err := r.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", t.name, err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
	select {
	case attached := <-r.said.attached:
		r.start = attached.Sub(begin)
		return r, nil
	case err := <-r.ended:
		cancel()
		return nil, fmt.Errorf("%s ended before it was attached (%v): %s", t.name, err, r.said)
	}
}

// detach ends the tool.
func (r *running) detach() (outcome, error) {
	defer r.cancel()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return outcome{}, fmt.Errorf("end %s: %w", r.name, err)
	}
	o := outcome{start: r.start}
	for tick := time.Tick(time.Millisecond); ; <-tick {
		// Rusage does not fit: it includes the parent's memory.
		o.peak = max(o.peak, peakMemory(r.cmd.Process.Pid))
		select {
		case err := <-r.ended:
			if err != nil {
				return o, fmt.Errorf("%s failed at its end: %w: %s", r.name, err, r.said)
			}
			o.said = r.said.String()
			return o, nil
		default:
		}
	}
}

// peakMemory returns the peak of a process' resident memory in bytes, or 0 once it has ended.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "\nVmHWM:")
	line, _, _ := strings.Cut(after, "\n")
	kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kB * 1024
}

// A watcher keeps a tool's messages, and reports when it is attached.
type watcher struct {
	attached chan time.Time // gets one time

	mu   sync.Mutex
	said bytes.Buffer
	told bool
}

// attachedLine is written in pieces by bpftrace; trace names the probes, too.
var attachedLine = regexp.MustCompile(`(?m)^Attached \d`)

func newWatcher() *watcher { return &watcher{attached: make(chan time.Time, 1)} }

func (w *watcher) Write(p []byte) (int, error) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said.Write(p)
	if !w.told && attachedLine.Match(w.said.Bytes()) {
		w.told = true
		w.attached <- now
	}
	return len(p), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.String()
}

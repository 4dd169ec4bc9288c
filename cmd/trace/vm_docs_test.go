//go:build vm

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVMDocs runs every command of the documents on real devices: those with a live output, whose lines must come, and those without, which
// must attach and trace for a while.
func TestVMDocs(t *testing.T) {
	TestDocLive(t)
	dir := readersFolder(t)
	ran := 0
	for _, doc := range userDocs() {
		for _, f := range fencesOf(readDoc(t, doc)) {
			if f.info != "sh" {
				continue
			}
			for line := range strings.Lines(f.text) {
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), "trace "); ok {
					ran++
					runReaders(t, dir, doc, shellWords(t, command))
				}
			}
		}
	}
	if ran < 40 {
		t.Errorf("the documents have %d commands", ran)
	}
}

// readersFolder returns a folder with what a reader of the documents has: recordings, types, a job of fio, a script. The control groups and
// programs that the documents name are there, too.
func readersFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for to, from := range map[string]string{
		"flows.rec": "../../scripts/testdata/rdma_flows.rec",
		"node1.rec": "../../scripts/testdata/rdma_flows.rec",
		"node2.rec": "../../scripts/testdata/rdma_monitor.rec",
		"types.btf": "/sys/kernel/btf/vmlinux",
	} {
		copyFile(t, from, filepath.Join(dir, to))
	}
	for name, text := range map[string]string{
		"job.fio":    "[job]\nioengine=sync\nrw=read\nsize=1m\nfilename=" + filepath.Join(dir, "data") + "\n",
		"mine.trace": "param interval = 1s\nnvme:complete_rq { @ = count() } interval:$interval { print(@) }\n",
		"make":       "#!/bin/sh\nexec true\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, group := range []string{"/kubepods.slice", "/system.slice", "/system.slice/db.service"} {
		path := filepath.Join("/sys/fs/cgroup", group)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// runReaders runs a command of a document. One that traces ends soon.
func runReaders(t *testing.T, dir, doc string, args []string) {
	t.Helper()
	command, _, err := rootCommand(streams{out: io.Discard, err: io.Discard}, nil, nil).Find(args)
	if err != nil {
		t.Errorf("%s: %q: %v", doc, args, err)
		return
	}
	traces := command.Name() == "record" || !command.HasParent() && !slices.Contains(args, "-r") && !slices.Contains(args, "--help")
	if traces {
		args = append(args, "--timeout", "300ms")
	}
	for i, arg := range args {
		if arg == "-o" || arg == "--record" { // of an earlier command, perhaps
			os.Remove(filepath.Join(dir, args[i+1]))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "trace", args...)
	if slices.Contains(args, "--live") { // it needs a terminal
		cmd = exec.CommandContext(ctx, "script", "-qec", strings.Join(quoted(cmd.Args), " "), "/dev/null")
	}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	attached := strings.Contains(string(out), "Attached ") || slices.Contains(args, "--live")
	switch {
	case strings.Contains(strings.Join(args, " "), "mlx5:"): // this machine has another driver
		if err == nil || !strings.Contains(string(out), "is not loaded (modprobe mlx5_") {
			t.Errorf("%s: trace %q: %v\n%s", doc, args, err, out)
		}
	case err != nil, traces && !attached:
		t.Errorf("%s: trace %q: %v\n%s", doc, args, err, out)
	}
}

// quoted quotes words for a shell.
func quoted(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return all
}

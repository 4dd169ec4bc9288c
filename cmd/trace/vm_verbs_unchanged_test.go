//go:build vm

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// libraryFolder has the providers' libraries of this machine.
const libraryFolder = "/usr/lib/x86_64-linux-gnu/libibverbs"

// loadsLate calls the main function of a library: it is not linked with libibverbs.
const loadsLate = `#include <dlfcn.h>
int main(int argc, char **argv) { return ((int (*)(int, char **))dlsym(dlopen(argv[1], RTLD_NOW), "late_main"))(argc - 1, argv + 1); }`

// unusualRuns are the commands of the test, in a folder with the programs, by what is unusual.
func unusualRuns(dir string) map[string]string {
	own := "mount -t tmpfs none " + dir + "/own && cp " + libraryFolder + "/* " + dir + "/own && mount --bind " + dir + "/own " + libraryFolder
	library := libraryFolder + "/librxe-rdmav34.so"
	run := func(mode string) string { return dir + "/unusual " + mode }
	return map[string]string{
		"plain":            run("plain 20"),
		"old calls":        dir + "/datapath batch=4 count=40 sges=2 signal=4",
		"new calls":        dir + "/datapath api=wr op=write batch=4 count=40",
		"threads":          dir + "/datapath threads=3 qps=2 count=20 onecq=1",
		"SRQ":              dir + "/datapath srq=1 qps=2 count=20",
		"UD":               dir + "/datapath type=ud count=20",
		"wrong key":        dir + "/datapath op=write fail=rkey count=10",
		"fork":             run("fork 10"),
		"exec":             run("exec 10"),
		"late dlopen":      dir + "/late " + dir + "/libunusual.so late 10",
		"death in a post":  run("killed 8"),
		"seccomp":          run("seccomp 10"),
		"signals":          run("signals 200"),
		"deleted program":  "cp " + dir + "/unusual " + dir + "/gone && " + dir + "/gone command 10 'rm " + dir + "/gone'",
		"many processes":   run("crowd 40"),
		"user namespace":   "unshare --user --map-root-user --mount --pid --fork " + run("plain 10"),
		"no privileges":    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all " + run("plain 10"),
		"replaced library": "unshare --mount sh -ec '" + own + "; exec " + run(fmt.Sprintf(`command 10 "cp %s %[1]s.new && mv %[1]s.new %[1]s"`, library)) + "'",
		"removed library":  "unshare --mount sh -ec '" + own + "; exec " + run(fmt.Sprintf(`command 10 "rm %s && umount -l %s"`, library, libraryFolder)) + "'",
		"removed container": "unshare --mount --pid --fork sh -ec '" + own + "; " +
			run(fmt.Sprintf(`command 10 "rm %s/own/*; umount -l %s; umount -l %[1]s/own; kill -9 \$PPID"`, dir, libraryFolder)) + "'",
	}
}

// buildUnusual makes the programs in a folder that everybody may read.
func buildUnusual(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	sh(t, `chmod 755 %[1]s %[2]s && mkdir %[1]s/own
gcc -Wall -Werror -s -o %[1]s/unusual testdata/vm/unusual.c -libverbs -lpthread
gcc -Wall -Werror -s -shared -fPIC -Dmain=late_main -o %[1]s/libunusual.so testdata/vm/unusual.c -libverbs -lpthread`, dir, filepath.Dir(dir))
	sh(t, `gcc -Wall -Werror -o %[1]s/datapath testdata/vm/datapath.c -libverbs -lpthread
gcc -o %[1]s/late -xc - <<'END'
%[2]s
END`, dir, loadsLate)
	return dir
}

var didLine = regexp.MustCompile(`(?m)^(\w+) posted (\d+) received (\d+) completed (\d+)$`)

// addDone adds what the program unusual prints to the counts by its name.
func addDone(counts map[string]uint64, printed string) {
	for _, m := range didLine.FindAllStringSubmatch(printed, -1) {
		for i, name := range []string{"sends", "receives", "completions"} {
			n, _ := strconv.ParseUint(m[i+2], 10, 64)
			counts[fmt.Sprintf("@%s[%s]", name, m[1])] += n
		}
	}
}

// Programs that fork, execute others, load the library late, die in a call, run with a filter of system calls, are interrupted by signals, lose
// their library or their own file, or are many, print the same and end in the same way with trace and without it, and what they do is counted.
func TestVMDatapathUnchanged(t *testing.T) {
	dir := buildUnusual(t)
	runs := unusualRuns(dir)
	alone := make(map[string]string)
	for name, command := range runs {
		alone[name] = startJob(t, "sh", "-c", command).result()
	}
	before := attachments(t)
	witness := startDatapath(t, filepath.Join(dir, "datapath"), "api=wr", "count=1")
	code := libraryCode(t, witness.cmd.Process.Pid)
	// Processes that were there before make the library known: each later one is seen from its first call.
	trace := startTool(t, "ttached", "trace", `
		verbs:post_send / comm != "killed" / { @sends[comm] = count() }
		verbs:post_recv { @receives[comm] = count() }
		verbs:poll_cq { @completions[comm] = count() }
		verbs:complete { @retired[comm] = sum(retired) }`)
	if bytes.Equal(code, libraryCode(t, witness.cmd.Process.Pid)) {
		t.Error("trace is not attached to a process that was there before")
	}
	want := make(map[string]uint64)
	for name, command := range runs {
		j := startFollowed(t, trace, command, strings.Contains(name, "removed") || strings.Contains(name, "replaced"))
		if got := j.result(); got != alone[name] {
			t.Errorf("%s: with trace\n%s\nwithout it\n%s", name, got, alone[name])
		}
		addDone(want, j.out.String())
	}
	for name, n := range maps.Clone(want) {
		if mode, is := strings.CutPrefix(name, "@sends"); is {
			want["@retired"+mode] = n
		}
	}
	trace.end(t)
	got := countsOf(mapsOf(trace.out.String()))
	maps.DeleteFunc(got, func(name string, _ uint64) bool {
		return strings.Contains(name, "datapath") || strings.Contains(name, "killed")
	})
	if !maps.Equal(got, want) || len(want) < 4*6 {
		t.Errorf("trace counts\n%v\nthe programs\n%v\n%s", got, want, trace.out.String())
	}
	if strings.Contains(trace.out.String(), "lost") {
		t.Error(trace.out.String())
	}
	if !bytes.Equal(code, libraryCode(t, witness.cmd.Process.Pid)) {
		t.Error("after trace the code of a process is not what it was")
	}
	if after := attachments(t); after != before {
		t.Errorf("trace leaves %s behind, before there was %s", after, before)
	}
	witness.finish(t)
}

// startFollowed starts a command. If it has a library of its own, it waits until trace has found that.
func startFollowed(t *testing.T, trace *tool, command string, own bool) *job {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	found := func() int { return strings.Count(trace.out.String(), "is followed from now on") }
	known := found()
	j := startJobWith(t, in, "sh", "-c", command)
	if own {
		waitUntil(t, command+" is followed", func() bool { return found() > known })
	}
	return j
}

// attachments describes what is attached on this machine: programs, maps, links, and users of uprobes.
func attachments(t *testing.T) string {
	t.Helper()
	return sh(t, `for what in prog map link; do echo $what $(bpftool -j $what list | grep -o '"id":' | wc -l); done; cat %s/uprobe_events | wc -l`, tracefs)
}

// libraryCode returns the code of the provider's library in the memory of a process.
func libraryCode(t *testing.T, pid int) []byte {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) r-xp .*librxe`).FindSubmatch(maps)
	if found == nil {
		t.Fatalf("process %d has no library:\n%s", pid, maps)
	}
	from, _ := strconv.ParseInt(string(found[1]), 16, 64)
	to, _ := strconv.ParseInt(string(found[2]), 16, 64)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	code := make([]byte, to-from)
	if _, err := memory.ReadAt(code, from); err != nil {
		t.Fatal(err)
	}
	return code
}

// A work request in memory that nobody has touched cannot be read before the call: -k warns of it, once for each probe, and of nothing otherwise.
func TestVMVerbsFailedReads(t *testing.T) {
	dir := buildUnusual(t)
	for _, run := range []struct {
		flags, mode string
		warns       bool
	}{{"-k", "cold 7", true}, {"-v", "cold 7", false}, {"-k", "command 7 true", false}} {
		trace := startCommand(t, exec.Command("trace", run.flags, "verbs:post_send { @[opcode] = count() } verbs:post_recv { @received = count() }"))
		program := exec.Command(dir+"/unusual", strings.Fields(run.mode)...)
		in, err := program.StdinPipe()
		if err := errors.Join(err, program.Start()); err != nil {
			t.Fatal(err)
		}
		trace.waitToSay(t, "is followed from now on")
		if err := errors.Join(in.Close(), program.Wait()); err != nil {
			t.Fatal(err)
		}
		trace.end(t)
		messages := trace.messages(t)
		n := 0
		if found := regexp.MustCompile(`verbs:post_send: WARNING: Failed to probe_read_user: Bad address \(-14\): (\d+) reads of`).FindStringSubmatch(messages); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
		t.Logf("%s %s: %d; %s", run.flags, run.mode, n, trace.wrote(t))
		if (n >= 7) != run.warns || strings.Count(messages, "probe_read_user") > 1 || !strings.Contains(trace.wrote(t), "]: ") {
			t.Error(messages)
		}
	}
}

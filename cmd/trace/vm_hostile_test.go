//go:build vm

package main

import (
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// asUser begins a command of a user without rights.
const asUser = "setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all "

// asOther is another user's.
const asOther = "setpriv --reuid 1001 --regid 1001 --clear-groups --inh-caps=-all "

// A lie is a hostile program that names a place as a function of libibverbs, and a program that shows whether anything is attached there.
type lie struct {
	name   string
	liar   string // a command
	victim string // a command; "": the honest program shows it
	// refused: nothing is attached, and the liar is named. Otherwise it is believed as far as it speaks for itself, or for processes of its user.
	refused bool
}

// hostileFiles are the programs of a test, in a folder that everybody may read.
type hostileFiles struct {
	t   *testing.T
	dir string
}

// buildHostile compiles them.
func buildHostile(t *testing.T) hostileFiles {
	t.Helper()
	dir := t.TempDir()
	sh(t, `chmod 755 %[1]s %[2]s && cd testdata/vm && flags='-Wall -Werror -O2'
gcc $flags -o %[1]s/hostile hostile.c -libverbs
gcc $flags -o %[1]s/victim hostile_victim.c
gcc $flags -DPRIVATE -o %[1]s/private hostile_victim.c -libverbs
gcc $flags -shared -fPIC -DPRIVATE -DLIBRARY -o %[1]s/library hostile_victim.c -libverbs`, dir, filepath.Dir(dir))
	return hostileFiles{t, dir}
}

// copied copies one of them, so that each lie has a victim of its own, and runs a command about the copy, $f.
func (h hostileFiles) copied(name, as, command string) (path string) {
	h.t.Helper()
	path = h.dir + "/" + as
	sh(h.t, "cp %s/%s %s && f=%[3]s && %s", h.dir, name, path, command)
	return path
}

// names is the end of a liar's command, which names a function of a file, or a place behind its beginning.
func (h hostileFiles) names(how, path, function string, behind uint64) string {
	h.t.Helper()
	return fmt.Sprintf("%s/hostile %s %s %d", h.dir, how, path, offsetOf(h.t, path, function)+behind)
}

// offsetOf returns where a function is in a file.
func offsetOf(t *testing.T, path, function string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, _ := f.Symbols() // libc has none
	dynamic, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(symbols, dynamic...) {
		if s.Name != function || s.Section == elf.SHN_UNDEF {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Vaddr <= s.Value && s.Value < p.Vaddr+p.Filesz {
				return s.Value - p.Vaddr + p.Off
			}
		}
	}
	t.Fatalf("%s has no function %s", path, function)
	return 0
}

// inside is in the middle of the first instruction of constant().
const inside = 4

// lies are all of them. Each has a file of its own, so that nobody shows what another one did.
func (h hostileFiles) lies() (all []lie) {
	add := func(name, liar, victim string, refused bool) { all = append(all, lie{name, liar, victim, refused}) }
	for _, how := range []string{"raw", "context", "qp", "cq"} {
		victim := h.copied("victim", "victim-"+how, "true")
		add("into an instruction, by "+how, asUser+h.names(how, victim, "constant", inside), victim, true)
	}
	sh(h.t, "mkdir %s/libc && cp /lib/x86_64-linux-gnu/libc.so.6 %[1]s/libc", h.dir)
	add("malloc of libc", asUser+h.names("context", h.dir+"/libc/libc.so.6", "malloc", 0), "env LD_LIBRARY_PATH="+h.dir+"/libc "+h.dir+"/victim", true)
	add("its own function", asUser+h.names("context", h.dir+"/hostile", "lure", 0), h.dir+"/hostile called", true)
	program := h.copied("private", "private-program", "true")
	add("a program that needs IBVERBS_PRIVATE", asUser+h.names("context", program, "constant", 0), program, true)
	devinfo := h.copied("private", "devinfo", "cp /usr/bin/ibv_devinfo $f")
	add("main of ibv_devinfo", fmt.Sprintf("%s%s/hostile context %s %d", asUser, h.dir, devinfo, mainOf(h.t, devinfo)), devinfo+" -d rxe0", true)

	bound := h.copied("victim", "victim-bound", "touch $f.so")
	add("a bind mount with a provider's name", asUser+"unshare --user --map-root-user --mount sh -ec 'mount --bind "+bound+" "+bound+".so; exec "+
		h.names("context", bound, "constant", inside)+"'", bound, true)
	add("an overlay", h.overlaid(h.copied("victim", "victim-overlaid", "mkdir $f.d $f.top $f.all && mv $f $f.d/f && chmod 777 $f.top")), h.dir+"/victim-overlaid.d/f", true)

	// These are providers by all that is in the file.
	libraries := func(name, as, command, who string, victimBy string, behind uint64, refused bool) {
		library := h.copied("library", as, command)
		add(name, who+h.names("context", library, "constant", behind), victimBy+h.dir+"/victim "+library, refused)
	}
	libraries("a provider's function, by a user", "library-root", "true", asUser, "", 0, false)
	libraries("into an instruction of a provider", "library-inside", "true", asUser, "", inside, true)
	libraries("a library of the user that looks like a provider", "library-user", "chown 1000:1000 $f", asUser, "", 0, false)
	libraries("a provider of another user", "library-other", "chown 1001:1001 $f", asUser, asOther, 0, false)
	libraries("a provider of root that all may write", "library-writable", "chmod 666 $f", asUser, "", 0, false)
	libraries("both of root and of the user", "library-mixed", "true", "setpriv --ruid 1000 --rgid 1000 --clear-groups ", "", 0, false)
	libraries("root of a user namespace", "library-namespace", "true", "unshare --user --map-root-user ", "", 0, false)
	sh(h.t, "mkdir %s/nosuid && mount -t tmpfs -o nosuid,mode=755 none %[1]s/nosuid", h.dir)
	h.t.Cleanup(func() { sh(h.t, "umount -l %s/nosuid", h.dir) })
	libraries("a mount with nosuid", "nosuid/library", "chmod 755 $f", "", asUser, 0, false)

	add("the provider's functions for each other", asUser+h.dir+"/hostile context swap", "", false)
	return all
}

// overlaid is the command of a liar that names a file through an overlay: the user makes it where the kernel lets him.
func (h hostileFiles) overlaid(of string) string {
	names := fmt.Sprintf("%s/hostile context %s.all/f %d", h.dir, of, offsetOf(h.t, of+".d/f", "constant")+inside)
	mount := "mount -t tmpfs none " + of + ".top && mkdir " + of + ".top/up " + of + ".top/work && mount -t overlay -o lowerdir=" + of + ".d,upperdir=" + of +
		".top/up,workdir=" + of + ".top/work none " + of + ".all"
	if os.Getenv("VMTEST_KERNEL") == "5.10" {
		return "unshare --mount sh -ec '" + mount + "; exec " + asUser + names + "'"
	}
	return asUser + "unshare --user --map-root-user --mount sh -ec '" + mount + "; exec " + names + "'"
}

// mainOf returns where main is in a program without symbols: _start has its address, by an instruction lea …(%rip), %rdi.
func mainOf(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	start := code[f.Entry-text.Addr:]
	at := strings.Index(string(start[:64]), "\x48\x8d\x3d")
	if at < 0 {
		t.Fatalf("%s: _start is % x", path, start[:64])
	}
	next := f.Entry + uint64(at) + 7
	return next + uint64(int32(f.ByteOrder.Uint32(start[at+3:]))) - text.Addr + text.Offset
}

// provideUnproven makes trace-unproven a command: trace that takes each place for a function. .ci/vmtest has built it.
func provideUnproven(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace-unproven")
	built, err := os.ReadFile(filepath.Join(root, ".vmtest/trace-unproven"))
	if err == nil {
		err = os.WriteFile(path, built, 0o755)
	}
	if err != nil {
		t.Fatalf("%v: .ci/vmtest builds it", err)
	}
	return path
}

// named reports whether trace has a message about a process.
func named(trace *tool, pid int, what string) bool {
	return regexp.MustCompile(fmt.Sprintf(`process %d\b.*(%s)`, pid, what)).MatchString(trace.out.String())
}

// waitQuiet waits until trace has printed nothing for a while: then it has looked at all that there is.
func waitQuiet(trace *tool) {
	const quiet = 15 * time.Second
	printed, since := "", time.Now()
	for begin := since; time.Since(since) < quiet && time.Since(begin) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
		if now := trace.out.String(); now != printed {
			printed, since = now, time.Now()
		}
	}
}

const refusal = "not followed|refused"

// honestPings is the program that is seen in full.
var honestPings = served{"ibv_rc_pingpong -d rxe0 -g 1 -n 500 -r 10 -s 1000", earlyPings, pingpong(false, 0)}

// A user without rights names places in all ways that there are as functions of libibverbs, before trace and after it. Programs of others do what
// they do without trace, nothing is counted of whoever calls no verbs, the honest program is seen in full, and the liars are named. Without the proof
// of places each lie does harm.
func TestVMHostilePlaces(t *testing.T) {
	h := buildHostile(t)
	lies := h.lies()
	alone := make(map[string]string)
	for _, l := range lies {
		if l.victim != "" {
			alone[l.name] = startJob(t, "sh", "-c", l.victim).result()
		}
	}
	unproven := provideUnproven(t)
	for i, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			(&deceit{lies: lies, alone: alone, port: 18700 + 10*i}).check(t, "trace", running)
		})
		t.Run(fmt.Sprintf("control/running=%t", running), func(t *testing.T) {
			(&deceit{lies: lies, alone: alone, port: 18705 + 10*i}).checkHarm(t, unproven, running)
		})
	}
}

// A deceit is all liars, and what they did.
type deceit struct {
	lies  []lie
	alone map[string]string // what the victims print without trace, by lie
	port  int

	liars     map[string]*quiet
	printed   map[string]string // what the victims print
	invented  map[string]uint64 // events of victims, by lie
	got, want map[string]uint64 // of all other processes
	trace     *tool
}

// check has trace not believe them.
func (d *deceit) check(t *testing.T, command string, running bool) {
	d.run(t, command, running)
	for _, l := range d.lies {
		if l.victim != "" && d.printed[l.name] != d.alone[l.name] {
			t.Errorf("%s: the victim prints\n%swithout trace\n%s", l.name, d.printed[l.name], d.alone[l.name])
		}
		if n := d.invented[l.name]; n > 0 {
			t.Errorf("%s: %d of the victim, which calls no verbs", l.name, n)
		}
		if pid := d.liars[l.name].pid; l.refused && !named(d.trace, pid, refusal) {
			t.Errorf("%s: process %d is not named", l.name, pid)
		}
	}
	compareCounts(t, d.got, d.want)
	text := d.trace.out.String()
	if !strings.Contains(text, "verbs: refused: ") {
		t.Error("what was refused is not counted")
	}
	if t.Failed() || strings.Contains(text, "trace: lost") {
		t.Error(text)
	}
}

// checkHarm has it believe them.
func (d *deceit) checkHarm(t *testing.T, command string, running bool) {
	d.run(t, command, running)
	for _, l := range d.lies {
		switch differs := l.victim != "" && d.printed[l.name] != d.alone[l.name]; {
		case l.victim == "" && maps.Equal(d.got, d.want), l.victim != "" && !differs && d.invented[l.name] == 0:
			t.Errorf("%s: no harm is done", l.name)
		case l.victim == "":
			t.Logf("%s: of the honest program %v is counted, of %v", l.name, d.got, d.want)
		default:
			t.Logf("%s: the output differs: %t; %d is counted", l.name, differs, d.invented[l.name])
		}
	}
	if t.Failed() {
		t.Log(d.trace.out.String())
	}
}

// run starts the liars, and trace, and then the honest program and the victims.
func (d *deceit) run(t *testing.T, command string, running bool) {
	d.liars, d.printed, d.invented = make(map[string]*quiet), make(map[string]string), make(map[string]uint64)
	begin := func() {
		for _, l := range d.lies {
			d.liars[l.name] = startQuiet(t, "sh", "-ec", "exec "+l.liar)
		}
	}
	if running {
		begin()
	}
	server := honestPings.serve(t, d.port)
	d.trace = startTool(t, "ttached", command, programTotals("pid"))
	if !running {
		begin()
	}
	for _, l := range d.lies {
		d.liars[l.name].next(t)
	}
	if !running {
		d.waitNamed(command == "trace")
	}
	waitQuiet(d.trace)
	client := honestPings.connect(t, d.port)
	client.result()
	server.result()
	victims := make(map[string]int)
	for _, l := range d.lies {
		if l.victim != "" {
			j := startJob(t, "sh", "-c", "exec "+l.victim)
			d.printed[l.name] = j.result()
			victims[l.name] = j.cmd.Process.Pid
		}
	}
	d.got, d.want = countsOf(d.trace.stop(t)), make(map[string]uint64)
	served := honestPings.counts(t, server.out.String(), false)
	served.receives["false"] -= honestPings.early
	served.addTo(d.want, server.cmd.Process.Pid)
	honestPings.counts(t, client.out.String(), true).addTo(d.want, client.cmd.Process.Pid)
	for name, pid := range victims {
		of := regexp.MustCompile(fmt.Sprintf(`\[%d[\],]`, pid))
		for row, n := range d.got {
			if of.MatchString(row) {
				d.invented[name] += n
				delete(d.got, row)
			}
		}
	}
	for _, liar := range d.liars {
		liar.end(t)
	}
}

// waitNamed waits until trace has a message about each liar that it refuses, for two minutes at most. Without the proof it refuses none: then there is
// one about each file, but where a file is known, so half a minute is enough.
func (d *deceit) waitNamed(refuses bool) {
	missing := func() bool {
		for _, l := range d.lies {
			if (l.refused || !refuses) && !named(d.trace, d.liars[l.name].pid, "") {
				return true
			}
		}
		return false
	}
	limit := 30 * time.Second
	if refuses {
		limit = 2 * time.Minute
	}
	for end := time.Now().Add(limit); missing() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
	}
}

// end ends it.
func (q *quiet) end(t *testing.T) {
	t.Helper()
	q.in.Close()
	if _, err := io.ReadAll(q.out); err != nil {
		t.Error(err)
	}
}

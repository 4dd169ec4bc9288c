package exec

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trace/lang/check"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/probes/event"
)

// hostileNames knows one cgroup, whose name would clear the screen.
type hostileNames struct{}

func (hostileNames) Ended(string) bool        { return false }
func (hostileNames) ID(string) (uint64, bool) { return 0, false }
func (hostileNames) Path(uint64) string       { return "/a\x1b[2J" }

func (hostileNames) Workload(uint64) event.Workload { return event.Workload{Pod: "p\x1b[2J"} }

// runHostile runs a program on an event whose names have control characters. It returns the output.
func runHostile(t *testing.T, src string, as output.Format, raw bool) string {
	t.Helper()
	p := langtest.Probe("nvme", "complete_rq", langtest.Optional("ctrl", langtest.Str16))
	p.Field("cgroup").Type.Enum = event.NewCgroupEnum(hostileNames{})
	program, err := compile("program", src, []*event.Probe{p}, check.Options{Raw: raw})
	if err != nil {
		t.Fatalf("%s:\n%v", src, err)
	}
	r := runProgram(t, program, time.Unix(0, 0).UTC())
	r.sink = output.NewPrinter(&r.out, as, event.NewWallClock(time.Unix(0, 0).UTC()))
	r.stacks = &stackStore{found: map[uint64]format.Frames{7: {"f\x1b]0;x\a+1", "=g;h+2"}}}
	r.sink.(*output.Printer).Show(output.NewColumns(as, false, nil), program.Printed(), program.Raw)
	e := values{langtest.Table{"nsecs": uint64(0), "pid": uint64(1), "comm": "é\x1b[31m\u009b", "cgroup": uint64(5), "pod": "p\x1b[2J", "ctrl": "=1+\t2"}, []any{uint64(7), uint64(7)}}
	r.eventOf(t, p, e)
	for _, m := range r.program.Maps {
		if err := r.scope().printMap(m, ir.MapOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return r.out.String()
}

// Control characters in names are never written. Control characters of the program itself are.
func TestControlCharacters(t *testing.T) {
	for _, test := range []struct{ src, want, raw string }{
		{`nvme:complete_rq { printf("\033[1m%s|%10s|%s\n", comm, ctrl, upper(comm)) }`,
			"\x1b[1mé\\x1b[31m\\u009b|    =1+\\t2|é\\x1b[31M\\u009b\n", "\x1b[1mé\x1b[31m\u009b|     =1+\t2|é\x1b[31M\u009b\n"},
		{`nvme:complete_rq { printf("%s%s", pid > 0 ? "\033[31m" : "\033[32m", "a\n") }`, "\x1b[31ma\n", "\x1b[31ma\n"},
		{`nvme:complete_rq { printf("%c%c%c", pid + 26, pid + 64, 10) }`, "\\x1bA\n", "\x1bA\n"},
		{`nvme:complete_rq { printf("%s %t %s %r", cgroup, cgroup, (comm, 1), comm) }`,
			`/a\x1b[2J /a\x1b[2J (é\x1b[31m\u009b, 1) \xc3\xa9\x1b[31m\xc2\x9b`, "/a\x1b[2J /a\x1b[2J (é\x1b[31m\u009b, 1) " + `\xc3\xa9\x1b[31m\xc2\x9b`},
		{`nvme:complete_rq { print(comm); print("\033[0m"); print(string(cgroup)) }`,
			"é\\x1b[31m\\u009b\n\x1b[0m\n/a\\x1b[2J\n", "é\x1b[31m\u009b\n\x1b[0m\n/a\x1b[2J\n"},
		{`nvme:complete_rq { print(pod); @[pod, 1] = pod }`, "p\\x1b[2J\n@[p\\x1b[2J, 1]: p\\x1b[2J\n", "p\x1b[2J\n@[p\x1b[2J, 1]: p\x1b[2J\n"},
		{`nvme:complete_rq { print(kstack) }`, "\n        f\\x1b]0;x\\a+1\n        =g;h+2\n\n", "\n        f\x1b]0;x\a+1\n        =g;h+2\n\n"},
		{`nvme:complete_rq { @[comm, cgroup] = ctrl }`, "@[é\\x1b[31m\\u009b, /a\\x1b[2J]: =1+\\t2\n", "@[é\x1b[31m\u009b, /a\x1b[2J]: =1+\t2\n"},
		{`nvme:complete_rq { @[pid] = (comm, cgroup) }`, "@[1]: (é\\x1b[31m\\u009b, /a\\x1b[2J)\n", "@[1]: (é\x1b[31m\u009b, /a\x1b[2J)\n"},
		{`nvme:complete_rq`, "00:00:00.000000 nvme:complete_rq \"é\\x1b[31m\\u009b\"/1 ctrl==1+\\t2\n", "00:00:00.000000 nvme:complete_rq é\x1b[31m\u009b/1 ctrl==1+\t2\n"},
	} {
		if test.src == "nvme:complete_rq" { // a text of several words gets quotes
			test.want = strings.Replace(test.want, `ctrl==1+\t2`, `ctrl="=1+\t2"`, 1)
		}
		if got := runHostile(t, test.src, output.Text, false); got != test.want {
			t.Errorf("%s:\ngot  %q\nwant %q", test.src, got, test.want)
		}
		if got := runHostile(t, test.src, output.Text, true); got != test.raw {
			t.Errorf("%s, raw:\ngot  %q\nwant %q", test.src, got, test.raw)
		}
		for _, format := range []output.Format{output.JSON, output.CSV} {
			got := runHostile(t, strings.ReplaceAll(test.src, `\033`, ""), format, false)
			if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0) }); i >= 0 {
				t.Errorf("%s, %s: a control character in %q", test.src, format, got)
			}
		}
	}
}

// Stacks are cells, in keys and in values. No cell from outside the program is a formula.
func TestCSVStacks(t *testing.T) {
	const src = `nvme:complete_rq { @[kstack, ctrl] = count(); @h[ustack] = hist(pid); @v = kstack; @t = (ustack, 1); @none[ustack] = kstack != nil }`
	rows := func(raw bool) (all [][]string) {
		for table := range strings.SplitSeq(runHostile(t, src, output.CSV, raw), "\n\n") {
			rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rows[len(rows)-1])
		}
		return all
	}
	const stack = `f\x1b]0:x\a+1;=g:h+2`
	got := rows(false)
	want := [][]string{{"@", stack, `'=1+\t2`, "1"}, {"@h", stack, "1", "2", "1"}, {"@v", stack}, {"@t", stack, "1"}, {"@none", stack, "true"}}
	for i := range want {
		if strings.Join(got[i], "|") != strings.Join(want[i], "|") {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	if got := rows(true)[0][2]; got != "=1+\t2" {
		t.Errorf("a raw cell is %q", got)
	}
}

// TestCatIsPresented prints a file that anyone may have written.
func TestCatIsPresented(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("a\x1b[31m\x9b\u009b\x7f\r\x00é\tb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[bool]string{false: `a\x1b[31m\x9b\u009b\x7f\r\x00é` + "\tb\n", true: "a\x1b[31m\x9b\u009b\x7f\r\x00é\tb\n"} {
		var out strings.Builder
		p := output.NewPrinter(&out, output.Text, event.NewWallClock(time.Unix(0, 0)))
		p.Show(output.Columns{}, nil, raw)
		sc := &scope{setting: setting{sink: p}}
		if err := sc.cat(name); err != nil || out.String() != want {
			t.Errorf("raw %v: got %q, %v, want %q", raw, out.String(), err, want)
		}
	}
}

// So is what a command prints; it comes while the command runs, and only as much of it waits in memory as has no end of a line.
func TestSystemIsPresented(t *testing.T) {
	for raw, want := range map[bool]string{false: `a\x1b[31m` + "\tb\n", true: "a\x1b[31m\tb\n"} {
		var out strings.Builder
		p := output.NewPrinter(&out, output.Text, event.NewWallClock(time.Unix(0, 0)))
		p.Show(output.Columns{}, nil, raw)
		sc := &scope{setting: setting{sink: p, ctx: t.Context()}, machine: &machine{}}
		if err := sc.system(`printf 'a\033[31m\tb\n'`); err != nil || out.String() != want {
			t.Errorf("raw %v: got %q, %v, want %q", raw, out.String(), err, want)
		}
	}
	for command, length := range map[string]int{"head -c 1000000 /dev/zero | tr '\\0' a": maxPiece + 32<<10, "yes | head -n 500000": 32 << 10} {
		got, longest := 0, 0
		lines := &byLine{write: func(b []byte) error { got, longest = got+len(b), max(longest, len(b)); return nil }}
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.Stdout = lines
		if err := errors.Join(cmd.Run(), lines.end()); err != nil || got != 1_000_000 || longest > length {
			t.Errorf("%s: %d bytes, %d of them at once, %v", command, got, longest, err)
		}
	}
}

// What is in a pipe counts; whoever has it open, and writes nothing, is not waited for.
func TestCatOfPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.WriteString("some"); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		text, err := readStart(name)
		read <- fmt.Sprint(string(text), " ", err)
	}()
	select {
	case got := <-read:
		if got != "some <nil>" {
			t.Error(got)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the writer")
	}
}

// The end of a run does not wait for processes that a command has left behind.
func TestSystemEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	p := output.NewPrinter(io.Discard, output.Text, event.NewWallClock(time.Unix(0, 0)))
	sc := &scope{setting: setting{sink: p, ctx: ctx, warn: func(bool, string) {}}, machine: &machine{}}
	began := time.Now()
	err := sc.system("{ sleep 20 | cat; } 2>/dev/null")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it takes %v: %v", took, err)
	}
}

//go:build !vm

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a program in a pseudo-terminal, and what it has written.
type terminal struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text string
	seen int           // of text, by expect
	done chan struct{} // closed when text has everything
}

// openTerminal runs trace in a terminal of that many columns, with files in its folder.
func openTerminal(t *testing.T, dir, term string, columns uint16, args ...string) *terminal {
	t.Helper()
	return openProgram(t, exec.Command("trace", args...), dir, term, columns)
}

// openProgram does the same with any program.
func openProgram(t *testing.T, cmd *exec.Cmd, dir, term string, columns uint16) *terminal {
	t.Helper()
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "TERM="+term, "XDG_STATE_HOME="+dir)
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, pty: f, cmd: cmd, done: make(chan struct{})}
	go x.read()
	t.Cleanup(func() {
		cmd.Process.Kill()
		f.Close()
	})
	return x
}

func (x *terminal) read() {
	defer close(x.done)
	buf := make([]byte, 4096)
	for {
		n, err := x.pty.Read(buf)
		x.mu.Lock()
		x.text += string(buf[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *terminal) send(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.pty, keys); err != nil {
		x.t.Fatal(err)
	}
}

// controls are the sequences that move the cursor and erase.
var controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")

// expect waits until the terminal has shown something new that matches, and returns it.
func (x *terminal) expect(pattern string) string {
	x.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		x.mu.Lock()
		text := controls.ReplaceAllString(x.text, "")
		at := re.FindStringIndex(text[min(x.seen, len(text)):])
		if at != nil {
			found := text[x.seen+at[0] : x.seen+at[1]]
			x.seen += at[1]
			x.mu.Unlock()
			return found
		}
		x.mu.Unlock()
		if time.Now().After(deadline) {
			x.t.Fatalf("the terminal does not show %s, but:\n%s", pattern, text[min(x.seen, len(text)):])
		}
	}
}

// leaves waits for the end of the program, and of what it has written.
func (x *terminal) leaves() {
	x.t.Helper()
	done := make(chan error, 1)
	go func() { done <- x.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			x.t.Errorf("trace ends with %v", err)
		}
		<-x.done
	case <-time.After(10 * time.Second):
		x.t.Error("trace does not end")
	}
}

const (
	tab   = "\t"
	enter = "\r"
	ctrlC = "\x03"
	ctrlD = "\x04"
)

func TestReplSession(t *testing.T) {
	file := recordReads(t, 1000)
	dir := t.TempDir()
	x := openTerminal(t, dir, "xterm", 120, "repl", file)
	x.expect(`^Type a program, like qp\.state == RTR, or a command: help lists them\. Ctrl-C stops a program, Ctrl-D leaves\.\ntrace> `)
	x.send("probes" + enter)
	x.expect(`(?m)^nvme:complete_rq$`)
	// A field, and a value of its enum.
	x.send("nvme:complete_rq / opco" + tab + " == rea" + tab + " && lat" + tab + " >= 1ms / { @[opcode] = count(); @t[slba > 50000000] = count() }")
	x.expect(`nvme:complete_rq / opcode == read && latency >= 1ms / `)
	x.send(enter)
	x.expect(`@\[read\]: 500`)
	x.send("maps" + enter)
	x.expect(`@ @t`)
	x.send(`print(@t, 1, by = "key")` + enter)
	count := x.expect(`@t\[true\]: [0-9]+`)
	x.send("explain" + enter)
	x.expect(`action +@\[opcode\] = count\(\)`)
	x.send("save found.trace" + enter)
	x.expect(`saved; run it with: trace found.trace`)
	x.send("run nvme_lat" + tab + " --ctrl" + tab + "=0" + enter)
	x.expect(`run nvme_latency --ctrl_id=0`)
	x.expect(`@percentiles`)
	// Several lines; an error does not end the session.
	x.send("begin {" + enter)
	x.expect(`\.\.\.> `)
	x.send(`printf("a line\n") }` + enter)
	x.expect("a line\n")
	x.send("latency >" + enter + "1 <" + enter + ctrlC)
	x.send("opcoed == read" + enter)
	x.expect(`did you mean "?opcode`)
	x.send("proebs" + enter)
	x.expect(`did you mean "probes"`)
	// A script is pasted, with tabs and newlines.
	x.send("\x1b[200~begin {\n\tprintf(\"pasted\\n\")\n}\n# two clauses\nend { printf(\"over\\n\") }\n\x1b[201~" + enter)
	x.expect(`(?s)pasted\n.*over\n`)
	x.send(ctrlD)
	x.leaves()

	out, err := exec.Command("trace", "-r", file, filepath.Join(dir, "found.trace")).Output()
	if err != nil || !strings.Contains(string(out), "@[read]: 500\n") || !strings.Contains(string(out), count+"\n") {
		t.Errorf("the saved script prints %s, and %v", out, err)
	}
	history, err := os.ReadFile(filepath.Join(dir, "trace", "history"))
	if err != nil || !strings.Contains(string(history), "print(@t, 1") {
		t.Errorf("the history is %q, and %v", history, err)
	}
	// It is there again, with what had several lines as one.
	x = openTerminal(t, dir, "xterm", 120, "repl", file)
	x.expect(`trace> `)
	x.send("begin {\x1b[A" + enter) // the latest that begins like this
	x.expect(`pasted\n`)
	x.send("quit" + enter)
	x.leaves()
}

// An editor and a pager have the terminal for themselves, and give it back.
func TestReplEditorAndPager(t *testing.T) {
	dir := t.TempDir()
	// Both show what they get, and take one line of what is typed.
	tool := "#!/bin/sh\necho tool is ready; read line </dev/tty; "
	editor, pager := filepath.Join(dir, "editor"), filepath.Join(dir, "pager")
	for name, text := range map[string]string{editor: tool + `echo "begin { print(\"$line\") }" > "$1"`, pager: tool + `echo "$line of $(wc -l) lines"`} {
		if err := os.WriteFile(name, []byte(text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := filepath.Abs("../../scripts/testdata/nvme_trace.rec")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", editor)
	t.Setenv("PAGER", pager)
	x := openTerminal(t, dir, "xterm", 120, "repl", rec)
	x.expect(`trace> `)
	for _, word := range []string{"first", "second"} {
		x.send("edit" + enter)
		x.expect(`tool is ready`)
		x.send(word + enter)
		x.expect(`begin \{ print\("` + word + `"\) \}\n` + word + `\n`)
	}
	x.send("fields nvme:complete_rq" + enter)
	x.expect(`tool is ready`)
	x.send("pages" + enter)
	x.expect(`pages of [0-9]{2,} lines`)
	x.send("probes" + enter) // fits
	x.expect(`(?m)^nvme:complete_rq$`)
	x.send("history 2" + enter)
	x.expect(`\nprobes\nhistory 2\n`)
	x.send(ctrlD)
	x.leaves()

	for editor, message := range map[string]string{
		"false": "edit: false: exit status 1; VISUAL or EDITOR in the environment chooses another editor",
		"true":  "edit: the program is as it was: nothing runs",
	} {
		t.Setenv("VISUAL", editor)
		x = openTerminal(t, dir, "xterm", 120, "repl", rec)
		x.expect(`trace> `)
		x.send("edit" + enter)
		x.expect(message)
		x.send("history 1" + enter + ctrlD)
		x.expect(`\nhistory 1\n`)
		x.leaves()
	}
}

// The live view of a program takes its keys through the loop, and gives the terminal back.
func TestReplLive(t *testing.T) {
	file := recordReads(t, 1000)
	x := openTerminal(t, t.TempDir(), "xterm-256color", 120, "repl", file)
	x.expect(`trace> `)
	x.send("live" + enter)
	x.expect(`live: expected a program: none has run yet`)
	x.send("live nvme_latency" + enter)
	x.expect(`live: nvme_latency is a script: run nvme_latency --live`)
	x.send("run nvme_latency --speed 0.00001 --li" + tab + enter) // for a hundred seconds
	x.expect(`sorted by value`)
	x.send("s")
	x.expect(`sorted by key`)
	x.send("q")
	x.expect(`trace> `)
	x.send("live nvme:complete_rq { @[ctrl] = count()" + enter)
	x.expect(`\.\.\.> `)
	x.send("}" + enter)
	x.expect(`ended  sorted by value`) // at the speed of the recording, which is over at once
	x.send("q")
	x.expect(`(?s)@\[nvme0\]: 1000\n.*trace> `)
	x.send("print @" + enter)
	x.expect(`(?m)^@\[nvme0\]: 1000$`)
	x.send(ctrlD)
	x.leaves()
}

func TestReplLiveOfThisMachine(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	x := openTerminal(t, t.TempDir(), "xterm-256color", 120)
	x.expect(`trace> `)
	x.send("syscall:exit { @[nr] = count(); exit() }" + enter)
	// One for each CPU at most: they may be at it at the same moment. The end of rt_sigreturn has no number ("-").
	x.expect(`@\[(-|[a-z_0-9]+)\]: \d\n`)
	for _, leave := range []string{"q", ctrlC} {
		x.send("live syscall:exit { @[nr] = count() }" + enter)
		x.expect(`sorted by value`)
		x.expect(`(?m)^@\[nr\]  count  \d+ keys$`)
		x.send(leave)
		x.expect(`(?s)@\[(-|[a-z_0-9]+)\]: [0-9]+\n.*trace> `)
	}
	x.send("live" + enter) // the same once more
	x.expect(`(?m)^@\[nr\]  count  \d+ keys$`)
	x.send("q")
	x.expect(`trace> `)
	x.send(ctrlD)
	x.leaves()
}

func TestReplSet(t *testing.T) {
	file := recordReads(t, 1000)
	dir := t.TempDir()
	x := openTerminal(t, dir, "xterm", 120, "repl", file)
	x.expect(`trace> `)
	x.send("set format htm" + tab + enter)
	x.expect(`set: html needs a file, which each program writes anew: set format html FILE`)
	x.send("set format pprof" + enter)
	x.expect(`set: pprof needs a file`)
	x.send("set format page" + enter)
	x.expect(`set: there is no format "page": use one of text, json, csv, perfetto, folded, pprof, html`)
	x.send("set format html page.html" + enter + "set" + enter)
	x.expect(`format html page.html\nlimit  none\nfields none`)
	x.send("nvme:complete_rq { @[opcode] = count() }" + enter)
	x.expect(`written to page.html`)
	x.send("nvme:complete_rq { @[opcode] = count() " + enter + "wrong }" + enter)
	x.expect(`wrong`)
	x.send("print @" + enter)
	x.expect(`(?m)^@\[read\]: 1000$`)
	x.send("set format json" + enter + "nvme:complete_rq { @[opcode] = count() }" + enter)
	x.expect(`"rows":\[\{"key":\["read"\],"value":1000\}\]`)
	x.send("set format folded" + enter + "nvme:complete_rq { @[opcode] = count() }" + enter)
	x.expect(`-f folded needs a map whose key holds a stack`)
	x.send("set format text" + enter + "nvme:complete_rq { @[opcode] = count() }" + enter)
	x.expect(`(?m)^@\[read\]: 1000$`)
	x.send("set fields" + enter)
	x.expect(`set: expected fields, like`)
	x.send("set fields probe, opcode" + enter + "set limit 1" + enter + "nvme:complete_rq" + enter)
	x.expect(`(?m)^probe=nvme:complete_rq opcode=read$`)
	x.send("set fields none" + enter + "nvme:complete_rq" + enter)
	x.expect(`(?m)^[0-9:.]+ nvme:complete_rq .*opcode=read`)
	x.send(ctrlD)
	x.leaves()
	if strings.Count(x.text, "written to page.html") != 1 {
		t.Errorf("more than one program was reported as written:\n%s", x.text)
	}
	page, err := os.ReadFile(filepath.Join(dir, "page.html"))
	if err != nil || !strings.Contains(string(page), ">1000</td>") {
		t.Errorf("the page has %d bytes, and %v", len(page), err)
	}
}

// What cannot work in the place where it is asked for is refused with the reason.
func TestMissingInput(t *testing.T) {
	if _, err := stdinText(nil, true); err == nil || err.Error() != "-: there is no standard input here" {
		t.Error(err)
	}
	if err := (&explorer{}).print("@", 0, ""); err == nil || err.Error() != "no program has run yet" {
		t.Error(err)
	}
}

// A terminal that cannot move its cursor has no live view.
func TestLiveInDumbTerminal(t *testing.T) {
	x := openTerminal(t, t.TempDir(), "dumb", 100, "--live", "begin { @ = count() }")
	x.expect(`trace: --live needs a terminal that can move its cursor, but TERM is dumb`)
}

func TestReplCtrlC(t *testing.T) {
	requireLive(t)
	callsComeIn(t)
	x := openTerminal(t, t.TempDir(), "xterm", 100)
	x.expect(`trace> `)
	x.send("syscall:exit { @[nr] = count() }" + enter)
	x.expect(`Hit Ctrl-C to end`)
	time.Sleep(300 * time.Millisecond)
	x.send(ctrlC)
	x.expect(`(?s)@\[[a-z_0-9]+\]: [0-9]+.*trace> `)
	x.send("print @ 1" + enter)
	x.expect(`@\[[a-z_0-9]+\]: [0-9]+\n`)
	x.send("half a li" + ctrlC) // of a line, not of the session
	x.expect(`trace> $`)
	x.send(ctrlD)
	x.leaves()
}

// At the prompt of a terminal that is too narrow to edit lines, and in one that knows no cursor, Ctrl-C is a signal.
func TestReplPoorTerminals(t *testing.T) {
	for _, poor := range []struct {
		term    string
		columns uint16
	}{{"xterm", 12}, {"dumb", 80}} {
		x := openTerminal(t, t.TempDir(), poor.term, poor.columns, "repl")
		x.expect(`trace> `)
		x.send("wrong" + ctrlC)
		time.Sleep(200 * time.Millisecond)
		x.send("begin { printf(\"%d\\n\", 6 * 7); exit() }\n")
		x.expect(`(?m)^42$`)
		x.send("quit\n")
		x.leaves()
	}
}

func TestReplWithoutTerminal(t *testing.T) {
	cmd := exec.Command("trace", "repl")
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader("begin {\n printf(\"%d\\n\", 6 * 7)\n exit()\n}\nprobes ib:*_qp\nbegin { printf(\"no end")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "Attached 1 probe\n42\nib:create_qp\nib:destroy_qp\nib:modify_qp\n") || !strings.Contains(string(out), "the string is not closed") {
		t.Errorf("%s\n%v", out, err)
	}
}

//go:build !vm

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a format makes at the end is in its file after the live view, which shows what the program prints, too.
func TestLiveViewAndFormats(t *testing.T) {
	file := recordReads(t, 3000)
	const program = `nvme:complete_rq { @[opcode] = count() } begin { printf("a line\n") }`
	for _, c := range []struct {
		format       string
		shown, later string // in the view, and after it
		file         string
	}{
		{"html", `a line`, ``, `>[0-9]+</td>`},
		{"json", `read [0-9]+  █+`, ``, `{"type":"printf","data":"a line\\u000a"}\n{"type":"map","data":{"@":`},
		{"csv", `read [0-9]+  █+`, ``, `a line\n\nmap,opcode,count\n@,read,[0-9]+\n`},
		{"json", `"data":"a line`, `\{"type":"map","data":\{"@":`, ``},
		{"folded", ``, `-f folded needs a map whose key holds a stack`, ``},
		{"perfetto", ``, `-f perfetto is not text for a terminal: write it to a file with -o FILE`, ``},
		{"html", ``, `-f html is not text for a terminal: write it to a file with -o FILE`, ``},
		{"pprof", ``, `-f pprof needs a map whose key holds a stack`, ``},
	} {
		dir := t.TempDir()
		args := []string{"-r", file, "--speed", "0.0005", "--live", "-f", c.format, program}
		if c.file != "" {
			args = append(args, "-o", "out")
		}
		x := openTerminal(t, dir, "xterm-256color", 100, args...)
		if c.shown != "" {
			x.expect(c.shown)
			x.send("q")
		}
		if c.later != "" {
			x.expect(c.later)
		}
		if c.shown != "" {
			x.leaves()
		}
		out, _ := os.ReadFile(filepath.Join(dir, "out"))
		if !regexp.MustCompile(c.file).Match(out) {
			t.Errorf("-f %s: %q", c.format, out)
		}
	}
	// Without a map, or a terminal that shows the view, nothing is begun.
	for text, want := range map[string]string{
		program:            "is not a terminal: write the data to a file with -o FILE",
		"nvme:complete_rq": "--live shows maps, but this program has none",
	} {
		out, err := exec.Command("trace", "-r", file, "--live", text).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s, and %v, want %s", out, err, want)
		}
	}
}

// altScreenOff gives the usual screen back.
const altScreenOff = "\x1b[?25h\x1b[?1049l"

// The maps are shown in place, react to keys and to the size of the terminal, and stand on the usual screen at the end.
func TestLiveView(t *testing.T) {
	file := recordReads(t, 3000) // three milliseconds
	x := openTerminal(t, t.TempDir(), "xterm-256color", 100, "-r", file, "--speed", "0.0005", "--live",
		`nvme:complete_rq { @lat[opcode] = hist(latency); @[ctrl] = count() } begin { printf("a line\n") }`)
	x.expect(`sorted by value`)
	x.expect(`@lat\[opcode\]  hist`)
	x.expect(`read  n [0-9]+  p50`)
	x.expect(`nvme0 [0-9]+  █+`)
	x.expect(`a line`)
	x.send("s")
	x.expect(`sorted by key`)
	x.send("p")
	x.expect(`paused`)
	x.send("p")
	x.expect(`\d+s  sorted by key`)
	x.send("q")
	x.expect(`(?s)@\[nvme0\]: [0-9]+.*@lat\[read\]:`)
	x.leaves()
	if !strings.HasSuffix(strings.Split(x.text, altScreenOff)[0], "\x1b[J") {
		t.Error("something was written between the last frame and the end of the screen")
	}
}

// A recording plays as it was made, and what it ends with stays until a key.
func TestLiveStays(t *testing.T) {
	file := recordReads(t, 3000) // three milliseconds
	x := openTerminal(t, t.TempDir(), "xterm-256color", 100, "-r", file, "--live", `nvme:complete_rq { @[ctrl] = count() }`)
	x.expect(`ended  sorted by value`)
	x.expect(`nvme0 3000  █+`)
	x.send("s")
	x.expect(`ended  sorted by key`)
	x.send("q")
	x.expect(`@\[nvme0\]: 3000`)
	x.leaves()
}

// Keys that are sequences scroll, ? lists all, and a rate is what comes now in a second of the recording.
func TestLiveKeys(t *testing.T) {
	file := recordReads(t, 3000)
	x := openTerminal(t, t.TempDir(), "xterm-256color", 100, "-r", file, "--speed", "0.0001", "--live",
		`nvme:complete_rq { @[slba] = count(); @r[ctrl] = rate() }`)
	x.expect(`@\[slba\]  count  [0-9]{3,} keys\n`) // more than there is room for
	x.send("\x1b[6~")
	x.expect(`@\[slba\]  count  [0-9]+ keys, from key [0-9]{2,}`)
	x.send("\x1b[B")
	x.expect(`keys, from key [0-9]{2,}`)
	x.send("\x1b[H")
	x.expect(`@\[slba\]  count  [0-9]+ keys\n`)
	x.expect(`nvme0 [0-9]{6,7}(\.[0-9])?/s  [▁-█]+`)
	x.send("?")
	x.expect(`PgUp PgDn`)
	x.send("q")
	x.expect(`@r\[nvme0\]: `)
	x.leaves()
}

// A signal that ends the run restores the screen, with the maps on it.
func TestLiveLeavesScreen(t *testing.T) {
	file := recordReads(t, 3000)
	for _, sig := range []unix.Signal{unix.SIGQUIT, unix.SIGTERM, unix.SIGINT} {
		x := openTerminal(t, t.TempDir(), "xterm-256color", 100, "-r", file, "--speed", "0.0001", "--live", `nvme:complete_rq { @[ctrl] = count() }`)
		x.expect(`nvme0 [0-9]+  █+`)
		if err := x.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		x.expect(`@\[nvme0\]: [0-9]+`)
		x.leaves()
		if _, after, left := strings.Cut(x.text, altScreenOff); !left || !strings.Contains(after, "@[nvme0]: ") {
			t.Errorf("%v leaves the screen: %v; after it there is %q", sig, left, after)
		}
	}
}

// has reports whether the terminal got a text, with its controls.
func (x *terminal) has(text string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Contains(x.text, text)
}

// An endless clause keeps no key from ending the view. Then the terminal interrupts what is left, and the maps are printed.
func TestLiveOfEndlessClause(t *testing.T) {
	flows, err := filepath.Abs("../../scripts/testdata/rdma_flows.rec")
	if err != nil {
		t.Fatal(err)
	}
	for _, quits := range []string{"q", "\x03"} {
		x := openTerminal(t, t.TempDir(), "xterm-256color", 100, "-r", flows, "--speed", "100", "--live", "--no-warnings",
			`ib:modify_qp { printf("it runs\n"); while (true) { @turns++ } }`)
		x.expect("\nit runs")
		x.send(quits)
		for deadline := time.Now().Add(time.Minute); !x.has(altScreenOff); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the terminal does not come back")
			}
		}
		x.send("\x03")
		x.expect(`the end of the run takes its time; Ctrl-C again`)
		x.send("\x03")
		x.expect(`@turns: [0-9]+`)
		x.leaves()
	}
}

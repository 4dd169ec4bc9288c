package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/output"
	"trace/lang/run"
	"trace/probes/event"
)

var bpftraceUpdate = flag.Bool("bpftrace.update", false, "write what bpftrace prints anew")

const bpftraceFile = "testdata/bpftrace.txt"

// sample is a program of bpftrace, its output with -f json, and a program of ours that prints the same.
type sample struct {
	name, theirs, ours string
	lines              []string
}

// samples reads the file: a text, and after each == a sample.
func samples(t *testing.T) (text string, all []sample) {
	t.Helper()
	data, err := os.ReadFile(bpftraceFile)
	if err != nil {
		t.Fatal(err)
	}
	text, rest, _ := strings.Cut(string(data), "\n== ")
	for part := range strings.SplitSeq(strings.TrimSpace(rest), "\n== ") {
		lines := strings.Split(strings.TrimSpace(part), "\n")
		s := sample{name: lines[0]}
		for _, line := range lines[1:] {
			if program, ok := strings.CutPrefix(line, "bpftrace: "); ok {
				s.theirs = program
			} else if program, ok := strings.CutPrefix(line, "trace: "); ok {
				s.ours = program
			} else {
				s.lines = append(s.lines, line)
			}
		}
		all = append(all, s)
	}
	return text, all
}

func (s sample) String() string {
	text := fmt.Sprintf("\n== %s\nbpftrace: %s\n", s.name, s.theirs)
	if s.ours != "" {
		text += fmt.Sprintf("trace: %s\n", s.ours)
	}
	return text + strings.Join(s.lines, "\n") + "\n"
}

// message is a line of JSON in bpftrace's form.
type message struct {
	Type  string
	Count json.Number
	Data  any
}

// aside reports whether a line describes the run and was not printed by the program.
func (m message) aside() bool { return m.Type == "attached_probes" || m.Type == "lost_events" }

func decode(t *testing.T, lines []string) (all []message) {
	t.Helper()
	for _, line := range lines {
		var m message
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// linesOf returns the printed lines. A line that repeats is returned once.
func linesOf(printed []byte) []string {
	return slices.Compact(strings.FieldsFunc(string(printed), func(r rune) bool { return r == '\n' }))
}

// TestSameAsBpftrace compares type and data of our output with bpftrace's.
func TestSameAsBpftrace(t *testing.T) {
	_, all := samples(t)
	for _, s := range all {
		if s.ours == "" {
			continue
		}
		want := slices.DeleteFunc(decode(t, s.lines), message.aside)
		if got := decode(t, printedBy(t, s.ours)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s prints\n%v\nand bpftrace\n%v", s.name, s.ours, got, want)
		}
	}
}

// printedBy runs a program that needs no event.
func printedBy(t *testing.T, program string) []string {
	t.Helper()
	rec := must(run.OpenRecordings("../../scripts/testdata/nvme_latency.rec"))
	defer rec.Close()
	replay, err := run.NewReplay(run.Options{Text: program, Format: output.JSON}, rec)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	var printed bytes.Buffer
	data := run.NewStream(t.Context(), nil, &printed)
	ended, err := replay.Run(t.Context(), run.Outputs{Data: data})
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	defer ended.Close()
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	return linesOf(printed.Bytes())
}

// TestAsidesSameAsBpftrace compares the lines about the run itself.
func TestAsidesSameAsBpftrace(t *testing.T) {
	_, all := samples(t)
	seen := map[string]bool{}
	for _, s := range all {
		for _, want := range slices.DeleteFunc(decode(t, s.lines), func(m message) bool { return !m.aside() }) {
			n := must(want.Count.Int64())
			var b bytes.Buffer
			p := output.NewPrinter(&b, output.JSON, event.NewWallClock(time.Time{}))
			var err error
			if want.Type == "lost_events" {
				err = p.Lost(0, uint64(n))
			} else {
				err = p.Attached(0, int(n))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := decode(t, linesOf(b.Bytes())); !reflect.DeepEqual(got, []message{want}) {
				t.Errorf("%s: got %v, and bpftrace prints %v", s.name, got, want)
			}
			seen[want.Type] = true
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v in %s", seen, bpftraceFile)
	}
}

// TestBpftrace runs the bpftrace of $BPFTRACE, a command like bpftrace or chroot DIR bpftrace, and compares its output with the
// file.
func TestBpftrace(t *testing.T) {
	command := strings.Fields(os.Getenv("BPFTRACE"))
	if len(command) == 0 {
		t.Skip("BPFTRACE, the command of a bpftrace, is not in the environment")
	}
	version, err := exec.Command(command[0], append(command[1:], "--version")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, all := samples(t)
	if !strings.Contains(text, strings.TrimSpace(string(version))) {
		t.Errorf("this is %s, and the file is of another version:\n%s", version, text)
	}
	for i, s := range all {
		want := decode(t, s.lines)
		var got []message
		for range 3 { // bpftrace does not report its losses each time
			if got = decode(t, all[i].run(t, command)); *bpftraceUpdate || reflect.DeepEqual(got, want) {
				break
			}
		}
		if !*bpftraceUpdate && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s prints\n%v\nin the file is\n%v", s.name, s.theirs, got, want)
		}
	}
	if *bpftraceUpdate {
		for _, s := range all {
			text += "\n" + strings.TrimPrefix(s.String(), "\n")
		}
		if err := os.WriteFile(bpftraceFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs the program of bpftrace, and returns what it prints.
func (s *sample) run(t *testing.T, command []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], append(command[1:], "-f", "json", "-e", s.theirs)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", s.theirs, err)
	}
	s.lines = linesOf(out)
	return s.lines
}

package output

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"trace/lang/result"
	"trace/probes/event"
)

// sampled are two profiles: one with a key besides the stack, whose names would break a line, and one of durations.
var sampled = []result.Profile{
	{Map: "@", Columns: []string{"comm"}, Samples: []result.Sample{
		{Frames: []string{"main", "read"}, Key: []string{"dd"}, Value: 5},
		{Frames: []string{"main", "a;b\nc 1"}, Key: []string{"dd"}, Value: 2},
		{Key: []string{"kworker/0:1"}, Value: 1},
	}},
	{Map: "@spent", Unit: event.Nanoseconds, Samples: []result.Sample{{Frames: []string{"main", "read", "vfs_read [x]"}, Value: 1e6}}},
}

func TestFolded(t *testing.T) {
	for _, test := range []struct {
		profiles []result.Profile
		want     string
	}{
		{sampled[:1], "dd;main;read 5\ndd;main;a:b c 1 2\nkworker/0:1;(no stack) 1\n"},
		{sampled, "@;dd;main;read 5\n@;dd;main;a:b c 1 2\n@;kworker/0:1;(no stack) 1\n@spent;main;read;vfs_read [x] 1000000\n"},
	} {
		var b bytes.Buffer
		if err := new(Document).writeFolded(&b, Summary{}, test.profiles); err != nil || b.String() != test.want {
			t.Errorf("got %q, %v, want %q", b.String(), err, test.want)
		}
	}
}

// TestPprof compares with what pprof itself reads.
func TestPprof(t *testing.T) {
	name := filepath.Join(t.TempDir(), "p")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(Document).writePprof(f, Summary{Began: time.Unix(100, 0), Ended: time.Unix(102, 0)}, sampled); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"-top"}, []string{`Type: samples`, `Duration: 2s, Total samples = 8`, `5 +62.50% +62.50% +5 +62.50% +read\n`, `0 +0% +100% +7 +87.50% +main\n`}},
		{[]string{"-top", "-sample_index=spent"}, []string{`Total samples = 1ms`, `1ms +100% +100% +1ms +100% +vfs_read \[x\]\n`}},
		{[]string{"-tags"}, []string{`comm: Total 8`, `7 \(87.50%\): dd\n`}},
	} {
		out, err := exec.Command("go", append(append([]string{"tool", "pprof"}, test.args...), name)...).CombinedOutput()
		for _, want := range test.want {
			if err != nil || !regexp.MustCompile(want).Match(out) {
				t.Errorf("%v: no %q, %v:\n%s", test.args, want, err, out)
			}
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(data)
	if err != nil || len(p.Sample) != 4 || !slices.Equal(p.Sample[0].Value, []int64{5, 0}) || p.Sample[0].Location[0].Line[0].Function.Name != "read" {
		t.Errorf("%v, %v", p, err)
	}
}

func TestTail(t *testing.T) {
	var b tail
	if lines := b.lines(); len(lines) != 1 || lines[0] != "" {
		t.Errorf("%q", lines)
	}
	for range 100000 {
		b.Write([]byte("a line\n"))
	}
	b.Write([]byte("the "))
	b.Write([]byte("last\n"))
	if lines := b.lines(); len(lines) != tailLines || lines[0] != "a line" || lines[tailLines-1] != "the last" || len(b.kept) > 2*tailBytes {
		t.Errorf("%q", lines)
	}
}

package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes"
	"trace/probes/event"
)

// layoutsOf returns layouts with all fields of some probes, and with stacks.
func layoutsOf(t testing.TB, names ...string) []*event.Layout {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	var all []*event.Layout
	for i, name := range names {
		p := catalog.Match(name)[0]
		all = append(all, event.NewLayout(i, p, p.Fields, slices.Repeat([]event.Type{{Kind: event.Uint, Size: 8}}, recordedStacks)))
	}
	return all
}

// smallLayouts are of probes without the long enums of the catalog, so that a header is read soon.
func smallLayouts(t testing.TB) []*event.Layout {
	t.Helper()
	return layoutsOf(t, "profile:hz", "nvme:async_event")
}

// events makes records of the layouts with random values, one each microsecond from start.
func events(t testing.TB, layouts []*event.Layout, start uint64, n int) []*event.Event {
	t.Helper()
	r := rand.New(rand.NewPCG(1, start))
	all := make([]*event.Event, n)
	for i := range all {
		l := layouts[r.IntN(len(layouts))]
		record := make([]byte, l.Size)
		for at := range record {
			if r.IntN(4) == 0 {
				record[at] = byte(r.Uint32())
			}
		}
		for _, pl := range l.Places() {
			switch pl.Field.Type.Kind {
			case event.Bool:
				record[pl.At] &= 1
			case event.String:
				copy(record[pl.At:pl.At+pl.Field.Type.Size], fmt.Sprintf("s%d\x00", i))
			}
			if pl.Field.Name == "nsecs" {
				binary.LittleEndian.PutUint64(record[pl.At:], start+uint64(i)*1000)
			}
		}
		binary.LittleEndian.PutUint64(record, uint64(l.ID))
		all[i] = &event.Event{}
		if err := event.Decode(layouts, record, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var header = Header{
	Host: "a", Kernel: "6.12.1", Arch: "amd64", Program: "nvme:*", Boot: time.Unix(1_700_000_000, 0).UTC(), Started: 5_000,
}

var recordedLosses = []Loss{{Probe: "nvme:setup_cmd", Lost: 3, Gaps: 2}, {Stacks: 5}}

// record writes events to a new file and returns its name.
func record(t testing.TB, name string, h Header, layouts []*event.Layout, all []*event.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	w, err := Create(path, Options{}, h, layouts, namesOf(h.Host))
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, w, all)
	if err := w.Close(1<<40, recordedLosses); err != nil {
		t.Fatal(err)
	}
	return path
}

func appendAll(t testing.TB, w *Writer, all []*event.Event) {
	t.Helper()
	for _, e := range all {
		if err := w.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

// values formats an event: all its fields, by name.
func values(e *event.Event) string {
	var b strings.Builder
	fmt.Fprint(&b, e.Probe)
	for _, f := range e.Probe.Fields {
		if f.Name == hostField { // no field of what is recorded
			continue
		}
		v, ok := e.Get(f)
		fmt.Fprintf(&b, " %s=%v,%v", f.Name, v, ok)
	}
	return b.String()
}

// readAll returns what all events of a recording say, and how reading them ended.
func readAll(names ...string) (all []string, r *Recording, err error) {
	if r, err = Open(names...); err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for {
		item, err := r.Next()
		if err != nil {
			return all, r, err
		}
		all = append(all, values(item.Event))
	}
}

// readBytes does the same with the bytes of a file.
func readBytes(data []byte) (all []string, r *Recording, err error) {
	in, err := newFile("test", io.NopCloser(bytes.NewReader(data)))
	if err != nil {
		return nil, nil, err
	}
	r = &Recording{files: []*file{in}, names: newKnownNames()}
	defer r.Close()
	if err := r.unite(); err != nil {
		return nil, nil, err
	}
	for {
		item, err := r.Next()
		if err != nil {
			return all, r, err
		}
		all = append(all, values(item.Event))
	}
}

func said(all []*event.Event) []string {
	var out []string
	for _, e := range all {
		out = append(out, values(e))
	}
	return out
}

func TestWhatIsReadIsWhatWasRecorded(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq", "ib:modify_qp", "syscall:exit")
	all := events(t, layouts, 10_000, 20_000) // several blocks
	got, r, err := readAll(record(t, "f", header, layouts, all))
	if err != io.EOF {
		t.Fatal(err)
	}
	if !slices.Equal(got, said(all)) {
		t.Fatal("other events were read than recorded")
	}
	info := r.Info()[0]
	if !reflect.DeepEqual(info.Header, header) || info.Cut || info.Ended != 1<<40 || info.First != 10_000 || info.Last != 10_000+19_999*1000 {
		t.Errorf("info: %+v", info)
	}
	if n := info.Events["nvme:complete_rq"] + info.Events["ib:modify_qp"] + info.Events["syscall:exit"]; n != 20_000 {
		t.Errorf("%d events are counted, 20000 were recorded", n)
	}
	if !slices.Equal(info.Losses, recordedLosses) {
		t.Errorf("losses: %v", info.Losses)
	}
	for _, l := range layouts {
		i := slices.IndexFunc(r.Probes(), func(p *event.Probe) bool { return p.String() == l.Probe.String() })
		if i < 0 {
			t.Fatalf("no %s in the recording", l.Probe)
		}
		fields := r.Probes()[i].Fields
		if last := fields[len(fields)-1]; last.Name != hostField || !last.Common {
			t.Errorf("%s: the last field is %+v, want the host", l.Probe, last)
		}
		for j, f := range fields[:len(fields)-1] {
			want := l.Probe.Fields[j]
			if f.Name != want.Name || f.Doc != want.Doc || f.Type.Kind != want.Type.Kind || f.Type.Unit != want.Type.Unit ||
				f.Optional != want.Optional || f.Common != want.Common || (f.Type.Enum == nil) != (want.Type.Enum == nil) {
				t.Errorf("%s: field %+v, recorded was %+v", l.Probe, f, want)
			}
		}
	}
}

// A file that ends anywhere has whole events from its beginning, and reports that it was cut off.
func TestCutAnywhere(t *testing.T) {
	layouts := smallLayouts(t)
	path := filepath.Join(t.TempDir(), "f")
	w, err := Create(path, Options{}, header, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, layouts, 10_000, 300)
	for i := 0; i < len(all); i += 50 {
		appendAll(t, w, all[i:i+50])
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := said(all)
	lengths := map[int]bool{}
	for n := 0; n < len(whole); n += 3 {
		got, r, err := readBytes(whole[:n])
		if r == nil {
			if len(got) > 0 {
				t.Fatalf("cut at %d: %v after %d events", n, err, len(got))
			}
			continue
		}
		if err != io.EOF || !r.Info()[0].Cut || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("cut at %d: %v, %d events, cut off: %v", n, err, len(got), r.Info()[0].Cut)
		}
		lengths[len(got)] = true
	}
	if len(lengths) != 7 { // after each of the six flushes, and none
		t.Errorf("the file had %v events, depending on where it was cut", lengths)
	}
}

// Whichever bytes are changed, reading returns what was written, up to an error.
func TestCorrupted(t *testing.T) {
	layouts := smallLayouts(t)
	all := events(t, layouts, 10_000, 200)
	path := record(t, "f", header, layouts, all)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := said(all)
	r := rand.New(rand.NewPCG(1, 2))
	silent := 0
	for i := range 10_000 {
		damaged := bytes.Clone(whole)
		for range 1 + r.IntN(3) {
			switch at := r.IntN(len(damaged)); r.IntN(3) {
			case 0:
				damaged[at] ^= 1 << r.IntN(8)
			case 1:
				damaged[at] = byte(r.Uint32())
			default:
				n := min(1+r.IntN(16), len(damaged)-at)
				damaged = slices.Delete(damaged, at, at+n)
			}
		}
		if bytes.Equal(damaged, whole) {
			continue
		}
		got, rec, err := readBytes(damaged)
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("corruption %d: other events than were recorded, and %v", i, err)
		}
		if err == io.EOF && !rec.Info()[0].Cut {
			silent++
		}
	}
	if silent > 0 {
		t.Errorf("%d corruptions were not noticed", silent)
	}
}

func TestRing(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq")
	path := filepath.Join(t.TempDir(), "ring")
	const size = 16 << 20
	if err := os.WriteFile(path+".7", []byte(magic+"of an earlier ring"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{MaxBytes: size}, header, layouts, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an earlier ring is in the way, and the error is %v", err)
	}
	w, err := Create(path, Options{MaxBytes: size, Replace: true}, header, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, layouts, 10_000, 150_000)
	appendAll(t, w, all)
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, name := range Segments(path) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > size || total < size/2 {
		t.Errorf("the ring of %d bytes has %d", size, total)
	}
	got, _, err := readAll(path)
	if err != io.EOF {
		t.Fatal(err)
	}
	want := said(all)
	if len(got) == 0 || len(got) == len(want) || !slices.Equal(got, want[len(want)-len(got):]) {
		t.Errorf("the ring has %d events, which are not the last of %d", len(got), len(want))
	}
	if _, err := Create(path, Options{MaxBytes: 4096}, header, layouts, nil); err == nil || !strings.Contains(err.Error(), "a ring of 4 KiB is too small: use at least ") {
		t.Error("a ring of 4096 bytes was begun")
	}
}

// A recording takes the place of another one only if it may, and of none that is being written.
func TestPlace(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq")
	create := func(path string, o Options) error {
		w, err := Create(path, o, header, layouts, nil)
		if err != nil {
			return err
		}
		return w.Close(1<<40, nil)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	w, err := Create(path, Options{}, header, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, want a file for its owner alone: %v", info, err)
	}
	for _, again := range []Options{{Replace: true}, {}} {
		if err := create(path, again); err == nil {
			t.Errorf("%+v: a recording that is being written was replaced", again)
		}
	}
	appendAll(t, w, events(t, layouts, 10_000, 10))
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	if got, _, err := readAll(path); len(got) != 10 || err != io.EOF {
		t.Errorf("%d events of 10: %v", len(got), err)
	}
	if err := create(path, Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a recording was overwritten: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := create(path, Options{Replace: true}); err != nil {
		t.Error(err)
	}
	if got, _, err := readAll(path); len(got) != 0 || err != io.EOF {
		t.Errorf("%d events are left of the recording before: %v", len(got), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, want a file for its owner alone: %v", info, err)
	}
	// A ring removes nothing but recordings, and none if it cannot begin.
	ring := filepath.Join(dir, "ring")
	for name, text := range map[string]string{ring + ".1": magic, ring + ".2": "", ring + ".3": "data of others"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(ring, Options{MaxBytes: 16 << 20, Replace: true}); err == nil {
		t.Error("a ring began beside data of others")
	}
	if left := Segments(ring); len(left) != 3 {
		t.Errorf("of the ring are left %v", left)
	}
	if err := os.Remove(ring + ".3"); err != nil {
		t.Fatal(err)
	}
	if err := create(ring, Options{MaxBytes: 16 << 20, Replace: true}); err != nil {
		t.Error(err)
	}
	if left := Segments(ring); len(left) != 1 {
		t.Errorf("of the ring are left %v", left)
	}
}

// Events of several hosts come in the order of the time of day, and tell their host.
func TestSeveralHosts(t *testing.T) {
	layouts := layoutsOf(t, "syscall:enter", "syscall:exit")
	a := record(t, "a", header, layouts, events(t, layouts, 10_000, 100))
	other := header
	other.Host, other.Boot = "b", header.Boot.Add(-50*time.Microsecond)
	// On b, which was booted 50 us earlier, the same moment is 50000 later.
	b := record(t, "b", other, layouts[:1], events(t, layouts[:1], 60_500, 100))
	r, err := Open(a, b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 200 {
		item, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		e := item.Event
		host, _ := e.Get(e.Probe.Field("host"))
		nsecs, _ := e.Get(e.Probe.Field("nsecs"))
		wantHost, wantTime := "a", uint64(60_000+i/2*1000) // since the boot of b
		if i%2 == 1 {
			wantHost, wantTime = "b", wantTime+500
		}
		if host != wantHost || nsecs != wantTime || item.Time != wantTime {
			t.Fatalf("event %d: host %v at %v, expected %v at %v", i, host, nsecs, wantHost, wantTime)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

// The moments of intervals come where they are among the events, and of several files not at all.
func TestIntervals(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq")
	h := header
	h.Intervals = []time.Duration{time.Second, 500 * time.Millisecond}
	path := filepath.Join(t.TempDir(), "f")
	w, err := Create(path, Options{}, h, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, layouts, 3, 1000)
	for i, period := range []time.Duration{500 * time.Millisecond, time.Second, 500 * time.Millisecond} {
		if err := errors.Join(w.Append(all[i]), w.Interval(period, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	read := func(names ...string) (got []string, r *Recording) {
		r, err := Open(names...)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var item Item
		for item, err = r.Next(); err == nil; item, err = r.Next() {
			if item.Event == nil {
				got = append(got, fmt.Sprintf("%v at %d", item.Interval, item.Time))
			} else {
				got = append(got, item.Event.Probe.String())
			}
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		return got, r
	}
	const event = "nvme:complete_rq"
	got, r := read(path)
	if want := []string{event, "500ms at 0", event, "1s at 1", event, "500ms at 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Equal(r.Intervals(), h.Intervals) || len(r.Probes()) != 1 || r.Info()[0].Events["interval:500ms"] != 2 {
		t.Errorf("intervals %v, probes %v, info %+v", r.Intervals(), r.Probes(), r.Info()[0])
	}
	if got, r := read(path, path); len(got) != 6 || slices.ContainsFunc(got, func(s string) bool { return s != event }) || r.Intervals() != nil {
		t.Errorf("two files: %q, intervals %v", got, r.Intervals())
	}
}

// Files that this package wrote when the format was new stay readable.
func TestOldFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/version*.rec")
	if err != nil || len(files) != Version {
		t.Fatalf("%d files for %d versions: %v", len(files), Version, err)
	}
	for _, name := range files {
		got, r, err := readAll(name)
		if err != io.EOF || r.Info()[0].Cut {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(name, ".rec") + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(got, "\n") + "\n"; text != string(want) {
			t.Errorf("%s: other events than were recorded:\n%s", name, text)
		}
	}
}

func TestWhatIsNoRecording(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "text": strings.Repeat("no recording\n", 100), "magic": magic} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, errNoRecording) {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := append([]byte(magic), 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	path := filepath.Join(dir, "newer")
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "use a newer trace") {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A disk that is full ends the recording with an error, and what was written before stays intact.
func TestFullDisk(t *testing.T) {
	layouts := layoutsOf(t, "nvme:complete_rq")
	if w, err := Create("/dev/full", Options{}, header, layouts, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a header is written to /dev/full: %v, %v", w, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_SYS_ADMIN to mount a file system: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path := filepath.Join(dir, "f")
	w, err := Create(path, Options{}, header, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, layouts, 10_000, 100_000)
	for _, e := range all {
		if err = w.Append(e); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Close(1<<40, nil)
	} else if e := w.Close(1<<40, nil); e == nil {
		t.Error("the end of the recording returns no error")
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the disk is full, and the error is %v", err)
	}
	got, r, err := readAll(path)
	want := said(all)
	if err != io.EOF || !r.Info()[0].Cut || len(got) == 0 || !slices.Equal(got, want[:min(len(got), len(want))]) {
		t.Errorf("%d events are read, and %v", len(got), err)
	}
}

// What a run went on without is no probe of its recording, and known with its reason. Beside a file that has it, it is one of both.
func TestLeftOut(t *testing.T) {
	layouts := smallLayouts(t)
	without := header
	without.LeftOut = []LeftOut{{[]string{"nvme:async_event", "nvme:sq"}, "no\nmodule \xff" + strings.Repeat("ä", maxText)}}
	all := events(t, layouts[:1], 10_000, 100)
	one, two := record(t, "one", without, layouts, all), record(t, "two", header, layouts, events(t, layouts, 10_000, 100))
	for _, test := range []struct {
		files  []string
		probes string
	}{
		{[]string{one}, "[profile:hz]"},
		{[]string{one, one}, "[profile:hz]"},
		{[]string{one, two}, "[nvme:async_event profile:hz]"},
		{[]string{two}, "[nvme:async_event profile:hz]"},
	} {
		r, err := Open(test.files...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.Probes()); got != test.probes {
			t.Errorf("%v: probes %s, want %s", test.files, got, test.probes)
		}
		why := "no module ?" + strings.Repeat("ä", (maxText-len("no module ?"))/2)
		want := map[string]string{"nvme:async_event": why, "nvme:sq": why}
		switch {
		case len(test.files) == 2 && test.files[1] == two:
			want["nvme:async_event"] = "in " + one + ": " + why
		case test.files[0] == two:
			want = map[string]string{}
		}
		if got := r.Untraced(); !reflect.DeepEqual(got, want) {
			t.Errorf("%v: left out %.200v, want %.200v", test.files, got, want)
		}
		n := 0
		for ; err == nil; n++ {
			_, err = r.Next()
		}
		if err != io.EOF || n-1 != 100*len(test.files) {
			t.Errorf("%v: %d events, %v", test.files, n-1, err)
		}
		r.Close()
	}
	for want, wrong := range map[string]LeftOut{
		`corrupt: "a:b" cannot be a probe that was left out`:   {[]string{"a:b", "a:b"}, "twice"},
		`corrupt: "a b" cannot be a probe that was left out`:   {[]string{"a b"}, "no name"},
		"corrupt: no readable reason why probes were left out": {[]string{"a:b"}, "\x1b"},
	} {
		h := fileHeader{Header: header}
		h.LeftOut = []LeftOut{wrong}
		if err := h.check(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", wrong, err, want)
		}
	}
}

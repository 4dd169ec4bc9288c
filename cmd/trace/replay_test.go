//go:build !vm

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"trace/lang/output"
	"trace/probes"
	"trace/probes/event"
	"trace/probes/recording"
)

// recordReads writes a recording of n completed reads; every other one took 1 ms.
func recordReads(t testing.TB, n int) string {
	t.Helper()
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	p := catalog.Match("nvme:complete_rq")[0]
	layouts := []*event.Layout{event.NewLayout(0, p, p.Fields, nil)}
	at := map[string]event.Place{}
	for _, pl := range layouts[0].Places() {
		at[pl.Field.Name] = pl
	}
	path := filepath.Join(t.TempDir(), "reads")
	w, err := recording.Create(path, recording.Options{}, recording.Header{Host: "h", Program: "nvme:complete_rq", Boot: time.Unix(1_700_000_000, 0)}, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, layouts[0].Size)
	copy(raw[at["comm"].At:], "fio")
	copy(raw[at["ctrl"].At:], "nvme0")
	copy(raw[at["disk"].At:], "nvme0n1")
	read, _ := at["opcode"].Field.Type.Enum.Value("read")
	binary.LittleEndian.PutUint16(raw[at["opcode"].At:], uint16(read))
	raw[at["qid"].At] = 1
	for _, name := range []string{"opcode", "slba", "ctrl", "disk", "comm", "ctrl_id", "qid"} {
		raw[at[name].HasAt] |= at[name].HasMask
	}
	raw[at["latency"].HasAt] |= at["latency"].HasMask
	for i := range n {
		binary.LittleEndian.PutUint64(raw[at["nsecs"].At:], uint64(i)*1000)
		binary.LittleEndian.PutUint64(raw[at["latency"].At:], uint64(i%2)*1_000_000)
		binary.LittleEndian.PutUint64(raw[at["slba"].At:], uint64(i)*104729)
		binary.LittleEndian.PutUint16(raw[at["cid"].At:], uint16(i))
		var e event.Event
		if err := event.Decode(layouts, raw, &e); err != nil {
			t.Fatal(err)
		}
		if err := w.Append(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(uint64(n)*1000, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// BenchmarkReplay reports how many recorded events a second go through a predicate and a count.
func BenchmarkReplay(b *testing.B) {
	const events = 1_000_000
	path := recordReads(b, events)
	for b.Loop() {
		o := options{recordings: []string{path}, quiet: true}
		s := streams{out: io.Discard, err: io.Discard}
		if err := runReplay(b.Context(), s, o, programText{name: "b", text: "nvme:complete_rq / latency >= 1ms / { @ = count() }"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

// Intervals follow the time of the recording, --speed the time of the clock.
func TestReplayTime(t *testing.T) {
	path := recordReads(t, 1000) // a millisecond
	var out, errs bytes.Buffer
	s := streams{out: &out, err: &errs}
	program := programText{name: "p", text: `nvme:complete_rq { @ = count() } interval:100us { printf("%d %d\n", nsecs, @) }`}
	began := time.Now()
	if err := runReplay(t.Context(), s, options{recordings: []string{path}, speed: 0.01, format: formatFlag{output.Text}}, program); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 95*time.Millisecond {
		t.Errorf("a millisecond at a hundredth of the speed took %v", took)
	}
	want := ""
	for i := 1; i <= 10; i++ {
		want += fmt.Sprintf("%d %d\n", i*100_000, i*100)
	}
	want += "@: 1000\n"
	if got := out.String(); got != want {
		t.Errorf("intervals:\n%swant\n%s", got, want)
	}
}

// However many intervals pass between two events, a replay ends when it is told to; played with a speed, it ends at that moment.
func TestReplayInterrupted(t *testing.T) {
	path := recordReads(t, 10_000_000/1000) // ten milliseconds
	for _, test := range []struct {
		program string
		speed   float64
		// at most so much time and so many events
		elapsed uint64
		events  int
	}{
		{`interval:1ns { @n++ } nvme:complete_rq { @ = count() } end { printf("%d %d\n", elapsed, @) }`, 0, 9_900_000, 9_900},
		{`nvme:complete_rq { @ = count() } end { printf("%d %d\n", elapsed, @) }`, 0.001, 1_000_000, 1000},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var out, errs bytes.Buffer
		began := time.Now()
		o := options{recordings: []string{path}, speed: test.speed, format: formatFlag{output.Text}, quiet: true}
		if err := runReplay(ctx, streams{out: &out, err: &errs}, o, programText{name: "p", text: test.program}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it ended after %v", test.program, took)
		}
		var elapsed uint64
		var events int
		if _, err := fmt.Sscanf(out.String(), "%d %d\n", &elapsed, &events); err != nil || elapsed == 0 || elapsed > test.elapsed || events > test.events || uint64(events) > elapsed/1000+1 {
			t.Errorf("%s: %d events until %d, %v:\n%s", test.program, events, elapsed, err, &out)
		}
	}
}

//go:build !vm

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/output"
)

// chromeEvent is an event of Chrome's Trace Event Format, as -f perfetto writes it.
type chromeEvent struct {
	Ph, Name, Cat string
	Pid, Tid      int
	Ts, Dur       json.Number
	Args          map[string]any
}

// chromeTrace is a trace. Names of threads begin with their process' name.
type chromeTrace struct {
	events  []chromeEvent
	threads map[int]string
}

// readChromeTrace reads one, in which each thread has a name, and belongs to one process.
func readChromeTrace(t *testing.T, data string) chromeTrace {
	t.Helper()
	var all struct{ TraceEvents []chromeEvent }
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		t.Fatalf("%v\n%.2000s", err, data)
	}
	trace, processes, in := chromeTrace{threads: map[int]string{}}, map[int]string{}, map[int]int{}
	for _, e := range all.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "process_name":
			processes[e.Pid] = e.Args["name"].(string)
		case e.Ph == "M" && e.Name == "thread_name":
			trace.threads[e.Tid], in[e.Tid] = processes[e.Pid]+", "+e.Args["name"].(string), e.Pid
		default:
			trace.events = append(trace.events, e)
			if processes[e.Pid] == "" || e.Ph != "C" && (trace.threads[e.Tid] == "" || in[e.Tid] != e.Pid) {
				t.Fatalf("nobody knows the thread %d of %d", e.Tid, e.Pid)
			}
		}
	}
	return trace
}

// nanoseconds converts a number of microseconds.
func nanoseconds(t *testing.T, micros json.Number) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(string(micros), ".")
	n, err := strconv.ParseInt(whole+(part + "000")[:3], 10, 64)
	if err != nil || len(part) > 3 {
		t.Fatalf("%q is no number of microseconds with up to three digits: %v", micros, err)
	}
	return n
}

// sums are how many slices there are, how long they are together, and how many instants.
type sums struct{ slices, length, instants int64 }

// rowsOf are the rows of a map that a program prints as JSON, by the elements of their keys.
func rowsOf(t *testing.T, output, name string) map[string]int64 {
	t.Helper()
	rows := map[string]int64{}
	for line := range strings.Lines(output) {
		var message struct {
			Data map[string]any
			Rows []struct {
				Key   []any
				Value int64
			}
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatal(err)
		}
		for _, r := range message.Rows {
			if _, is := message.Data[name]; is {
				rows[strings.Trim(fmt.Sprint(r.Key), "[]")] = r.Value
			}
		}
	}
	return rows
}

// Of each recording the slices and instants are as many and as long as another program counts them, for each probe and for each track.
func TestPerfetto(t *testing.T) {
	bundled, _ := filepath.Glob("../../scripts/testdata/*.rec")
	others, _ := filepath.Glob("testdata/lines/*.rec")
	if len(bundled) == 0 || len(others) == 0 {
		t.Fatal("no recordings")
	}
	for _, path := range slices.Concat(bundled, others) {
		file := filepath.ToSlash(filepath.Join("cmd/trace", path))
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			probes := strings.Fields(replay(t, "-r", file, "-l"))
			trace := readChromeTrace(t, replay(t, "-r", file, "-f", "perfetto", strings.Join(probes, ", ")))
			byProbe := map[string]sums{}
			for _, e := range trace.events {
				name := e.Name[strings.LastIndex(e.Name, " ")+1:]
				of := byProbe[name]
				switch e.Ph {
				case "X":
					of.slices, of.length = of.slices+1, of.length+nanoseconds(t, e.Dur)
					if latency, ok := e.Args["latency"].(json.Number); !ok || string(latency) != fmt.Sprint(nanoseconds(t, e.Dur)) {
						t.Errorf("a slice of %s has the latency %v", e.Dur, e.Args["latency"])
					}
				case "i":
					of.instants++
				default:
					t.Errorf("an event of phase %s", e.Ph)
				}
				byProbe[name] = of
			}
			for _, probe := range probes {
				program := probe + ` { @events[probe] = count() }`
				if strings.Contains(replay(t, "-r", file, "-lv", probe), "    latency ") {
					program += probe + ` / latency != nil / { @slices[probe] = count(); @length[probe] = sum(latency) }`
				}
				counted := replay(t, "-r", file, "-f", "json", program)
				want := sums{slices: rowsOf(t, counted, "@slices")[probe], length: rowsOf(t, counted, "@length")[probe]}
				want.instants = rowsOf(t, counted, "@events")[probe] - want.slices
				if got := byProbe[probe]; got != want {
					t.Errorf("%s: %+v, want %+v", probe, got, want)
				}
			}
			testLanes(t, trace)
		})
	}
}

// testLanes holds that slices of a thread do not overlap, and that a track has no more threads than slices at one time.
func testLanes(t *testing.T, trace chromeTrace) {
	t.Helper()
	type change struct {
		at    int64
		begin bool
	}
	ends, changes, lanes := map[int]int64{}, map[string][]change{}, map[string]int{}
	events := slices.DeleteFunc(slices.Clone(trace.events), func(e chromeEvent) bool { return e.Ph != "X" })
	slices.SortStableFunc(events, func(a, b chromeEvent) int {
		return cmp.Or(cmp.Compare(nanoseconds(t, a.Ts), nanoseconds(t, b.Ts)), cmp.Compare(nanoseconds(t, a.Dur), nanoseconds(t, b.Dur)))
	})
	for _, e := range events {
		begin := nanoseconds(t, e.Ts)
		end := begin + nanoseconds(t, e.Dur)
		if before, there := ends[e.Tid]; there && begin <= before {
			t.Errorf("%s: %s at %s begins before another one has ended", trace.threads[e.Tid], e.Name, e.Ts)
		}
		ends[e.Tid] = end
		track, _, _ := strings.Cut(trace.threads[e.Tid], " #")
		changes[track] = append(changes[track], change{begin, true}, change{end, false})
	}
	for tid := range ends {
		track, _, _ := strings.Cut(trace.threads[tid], " #")
		lanes[track]++
	}
	for track, all := range changes {
		slices.SortStableFunc(all, func(a, b change) int {
			if a.at == b.at && a.begin != b.begin { // one that ends when another begins is in its way
				return map[bool]int{true: -1, false: 1}[a.begin]
			}
			return cmp.Compare(a.at, b.at)
		})
		now, most := 0, 0
		for _, c := range all {
			if now--; c.begin {
				now += 2
			}
			most = max(most, now)
		}
		if lanes[track] != most {
			t.Errorf("%s: %d lanes, want %d", track, lanes[track], most)
		}
	}
}

// An event is on the track of its queue, of its QP, or of its CPU.
func TestPerfettoTracks(t *testing.T) {
	for _, test := range []struct{ file, probes, key, track string }{
		{"scripts/testdata/nvme_latency.rec", "nvme:complete_rq", "ctrl, qid", "%s, qid %s"},
		{"scripts/testdata/nvme_stuck.rec", "nvme:complete_rq", "ctrl, qid", "%s, qid %s"},
		{"scripts/testdata/rdma_flows.rec", "ib:create_qp, ib:modify_qp, ib:destroy_qp", "dev, qp.num", "%s, QP %s"},
		{"scripts/testdata/rdma_monitor.rec", "ib:alloc_pd, ib:dealloc_pd, ib:create_cq, ib:destroy_cq", "\"CPUs\", cpu", "%s, CPU %s"},
		{"cmd/trace/testdata/lines/mlx5.rec", "mlx5:create_qp, mlx5:modify_qp", "dev, qp.num", "%s, QP %s"},
		{"cmd/trace/testdata/lines/system.rec", "syscall:exit", "\"CPUs\", cpu", "%s, CPU %s"},
	} {
		trace := readChromeTrace(t, replay(t, "-r", test.file, "-f", "perfetto", "--fields", "comm", test.probes))
		got := map[string]int64{}
		for _, e := range trace.events {
			track, _, _ := strings.Cut(trace.threads[e.Tid], " #")
			if got[track] += 1; len(e.Args) != 1 || e.Args["comm"] == nil {
				t.Errorf("%s: the arguments are %v", test.file, e.Args)
			}
		}
		want := map[string]int64{}
		for key, n := range rowsOf(t, replay(t, "-r", test.file, "-f", "json", test.probes+" { @["+test.key+"] = count() }"), "@") {
			device, number, _ := strings.Cut(key, " ")
			want[fmt.Sprintf(test.track, device, number)] = n
		}
		if !maps.Equal(got, want) || len(want) == 0 {
			t.Errorf("%s: %v, want %v", test.file, got, want)
		}
	}
}

// What intervals print of maps are counters: as many values as -f json prints, and 0 once there is none.
func TestPerfettoCounters(t *testing.T) {
	const file = "scripts/testdata/nvme_latency.rec"
	const program = `nvme:complete_rq { @n[opcode] = count(); @most[qid] = max(latency); @h = hist(latency) }
		interval:ms:200 { print(@n); clear(@n); print(@most) } interval:s:5 { print(@most[1]); print(@h) } end { clear(@n) }`
	got := map[string][]string{}
	trace := readChromeTrace(t, replay(t, "-r", file, "-f", "perfetto", program))
	for _, e := range trace.events {
		if e.Ph != "C" {
			t.Fatalf("an event of phase %s", e.Ph)
		}
		for name, v := range e.Args {
			got[e.Name+" "+name] = append(got[e.Name+" "+name], fmt.Sprint(v))
		}
	}
	want := map[string][]string{}
	for line := range strings.Lines(replay(t, "-r", file, "-f", "json", program)) {
		var message struct {
			Data any
			Func string
			Rows []struct {
				Key   []any
				Value json.Number
			}
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatal(err)
		}
		if message.Data == nil { // no value yet
			continue
		}
		if n, single := message.Data.(float64); single {
			want["@most[1] max"] = append(want["@most[1] max"], strconv.FormatFloat(n, 'f', -1, 64))
			continue
		}
		name := ""
		for name = range message.Data.(map[string]any) {
		}
		for _, r := range message.Rows {
			if message.Func != "hist" {
				series := name + fmt.Sprint(r.Key) + " " + message.Func
				want[series] = append(want[series], string(r.Value))
			}
		}
	}
	for name, values := range want {
		shown := got[name]
		if strings.HasPrefix(name, "@n") {
			if shown[len(shown)-1] != "0" {
				t.Errorf("%s: it ends with %s although the map was cleared", name, shown)
			}
			shown = slices.DeleteFunc(shown, func(n string) bool { return n == "0" })
		}
		if !slices.Equal(shown, values) {
			t.Errorf("%s: %s, want %s", name, shown, values)
		}
	}
	if last := got["@h count"]; len(last) == 0 || last[len(last)-1] != "500" {
		t.Errorf("@h has %s values", last)
	}
	if len(want) != 4 {
		t.Errorf("%d counters: %v", len(want), want)
	}
}

// Whatever ends a run, and if nothing comes, the trace is whole.
func TestPerfettoEnds(t *testing.T) {
	for program, speed := range map[string]float64{"nvme:complete_rq": 0.0001, "nvme:complete_rq / qid == 77 /": 0, `begin { printf("x") } nvme:complete_rq`: 0.0001} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var out bytes.Buffer
		o := options{recordings: []string{"../../scripts/testdata/nvme_latency.rec"}, speed: speed, format: formatFlag{output.Perfetto}, quiet: true}
		if err := runReplay(ctx, streams{out: &out, err: io.Discard}, o, programText{name: "p", text: program}); err != nil {
			t.Fatal(err)
		}
		if n := len(readChromeTrace(t, out.String()).events); n == 500 {
			t.Errorf("%s: all %d events, although it was interrupted", program, n)
		}
	}
}

func TestPerfettoEndsOnSignal(t *testing.T) {
	requireLive(t)
	file := filepath.Join(t.TempDir(), "f")
	tr := startTrace(t, "-f", "perfetto", "-o", file, `syscall:exit / comm == "helper" && nr == getppid /`)
	if err := exec.Command("helper", "1").Run(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := tr.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	tr.endsWithin(time.Second, exitOK)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trace := readChromeTrace(t, string(data))
	if all := trace.events; len(all) != 2 || all[0].Name != "attached_probes" || all[1].Ph != "X" {
		t.Errorf("%s", data)
	}
}

//go:build vm

package main

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A failing is a program whose work requests fail, and what rdma_errors must print about it.
type failing struct {
	*datapath
	args   string
	before bool   // it was connected before trace began
	cgroup string // its path
	pid    string
	totals datapathTotals
}

// failures are the options of datapath, and the limits of its QPs as a line has them.
var failures = map[string]string{
	"op=write fail=rkey count=20":  `timeout=8 (1.05ms) retry_cnt=1 (gives up after 2.1ms to 8.39ms) rnr_retry=7 (no limit)`,
	"op=write fail=killed count=3": `timeout=8 (1.05ms) retry_cnt=1 (gives up after 2.1ms to 8.39ms) rnr_retry=7 (no limit)`,
	"fail=rnr count=20":            `timeout=14 (67.1ms) retry_cnt=7 (gives up after 537ms to 2.15s) rnr_retry=1`,
}

// startFailing starts a program of each kind in a cgroup of its own, and another one in a container, too.
func startFailing(t *testing.T, path string, before bool) []*failing {
	t.Helper()
	var all []*failing
	for args := range failures {
		for _, contained := range []bool{false, true} {
			command := append(append([]string{path}, strings.Fields(args)...), "wait=1")
			if contained {
				command = append([]string{"unshare", "--mount", "--pid", "--fork"}, command...)
			}
			kind := regexp.MustCompile(`fail=(\w+)`).FindStringSubmatch(args)[1]
			f := &failing{args: args, before: before}
			f.cgroup, command = inCgroup(t, fmt.Sprintf("%s-%t-%t", kind, before, contained), command...)
			f.datapath = startDatapathBy(t, exec.Command(command[0], command[1:]...))
			f.pid = fmt.Sprint(f.cmd.Process.Pid)
			if contained {
				f.pid = strings.TrimSpace(sh(t, "cat /proc/%s/task/%[1]s/children", f.pid))
			}
			all = append(all, f)
		}
	}
	return all
}

// line is the line about the first failed completion of a QP, as a regular expression.
func (f *failing) line(qp, peer uint64, status string) string {
	age, over := `[\d.]+m?s`, ""
	if f.before {
		over = "over "
	}
	return fmt.Sprintf(`(?m)^\S+ rxe0 qp %d failed with %s \(\d+\), [^:]+: datapath/%s cgroup=%s ::ffff:10\.9\.0\.1 -> ::ffff:10\.9\.0\.1 qp %d port=1 `,
		qp, status, f.pid, f.cgroup, peer) + `age=` + over + age + " " + regexp.QuoteMeta(failures[f.args]) + ` wr_id=0x\d+ vendor_err=0x0(, it had \w+ \S+ before)?$`
}

// firstFailure is the status of a queue's failed completions other than those that were flushed, WR_FLUSH_ERR if all were, and "" if none
// failed.
func (q queueTotals) firstFailure() string {
	first := ""
	for by := range q.By {
		_, status, _ := strings.Cut(by, " ")
		if status != "SUCCESS" && (first == "" || status != "WR_FLUSH_ERR") {
			first = status
		}
	}
	return first
}

// An error 12, a wrong key and a missing receive are a line each for the QP that sends, and for the one that receives if its program gets
// failed completions, too: with the flow, of connections from before trace began and after that, in a container, too. What follows is
// counted. A replay prints the same.
func TestVMScriptRdmaErrorsFlows(t *testing.T) {
	path, file := buildDatapath(t), filepath.Join(t.TempDir(), "recording")
	programs := startFailing(t, path, true)
	renewed := startDatapath(t, path, "op=write", "fail=rkey", "count=5", "rounds=3")
	trace := startCommand(t, exec.Command("trace", "--record", file, "rdma_errors"))
	programs = append(programs, startFailing(t, path, false)...)
	for _, f := range programs {
		fmt.Fprintln(f.in)
	}
	for _, f := range programs {
		f.totals = f.finish(t)
	}
	again := renewed.finish(t).QPs[0]
	trace.end(t)
	for probe, n := range lostOf(t, trace.messages(t)) { // 7.2 skips programs in interrupts, and reports that
		if probe != "ib:event" {
			t.Errorf("%d %s events were lost", n, probe)
		}
	}
	text := trace.wrote(t)
	// A QP that is set up anew and fails again is a new line, with the age of its new connection. In each round one request fails, unless rxe
	// drops the round's packets.
	status := again.Sends.firstFailure()
	rounds := int(again.Sends.By["- "+status])
	line := fmt.Sprintf(` rxe0 qp %d failed with %s \(\d+\), .* qp %d port=1 age=`, again.Sender, status, again.Receiver)
	for lines, n := range map[string]int{line: rounds, line + "over ": max(0, rounds-2), fmt.Sprintf(" rxe0 qp %d failed with ", again.Sender): rounds} {
		if got := len(regexp.MustCompile(lines).FindAllString(text, -1)); got != n || rounds < 2 {
			t.Errorf("%d lines like %q, want %d", got, lines, n)
		}
	}
	total, received := rounds+strings.Count(text, fmt.Sprintf(" rxe0 qp %d failed with ", again.Receiver)), 0
	kinds := make(map[string]int)
	for _, f := range programs {
		qp := f.totals.QPs[0]
		for _, side := range []struct {
			number, peer uint64
			queue        queueTotals
		}{{qp.Sender, qp.Receiver, qp.Sends}, {qp.Receiver, qp.Sender, qp.Receives}} {
			status, want := side.queue.firstFailure(), 0
			if status != "" {
				want = 1
				total++
			}
			if line := f.line(side.number, side.peer, status); len(regexp.MustCompile(line).FindAllString(text, -1)) != want {
				t.Errorf("%s (before: %t): want %d lines like %s", f.args, f.before, want, line)
			}
			for by, n := range side.queue.By {
				_, status, _ := strings.Cut(by, " ")
				count := fmt.Sprintf("\n@completions[rxe0, %d, %s, datapath, %s]: %d\n", side.number, status, f.pid, n)
				if status != "SUCCESS" && !strings.Contains(text, count) {
					t.Errorf("%s: no %q", f.args, count)
				}
			}
		}
		received += len(qp.Receives.By)
		sends, receives := qp.Sends.firstFailure(), qp.Receives.firstFailure()
		kinds[f.args+": "+sends]++
		switch {
		case sends == "": // a busy machine did not even get to the last retry
		case strings.Contains(f.args, "killed") && (sends != "RETRY_EXC_ERR" || receives != ""),
			// rxe of 5.10 was seen to flush one of the four
			strings.Contains(f.args, "rnr") && (sends != "RNR_RETRY_EXC_ERR" && sends != "WR_FLUSH_ERR" || receives != ""),
			strings.Contains(f.args, "rkey") && (sends != "REM_ACCESS_ERR" && sends != "RETRY_EXC_ERR" || receives != "WR_FLUSH_ERR" && receives != ""):
			t.Errorf("%s fails with %s, and its peer with %q", f.args, sends, receives)
		}
	}
	for _, kind := range []string{"op=write fail=killed count=3: RETRY_EXC_ERR", "fail=rnr count=20: RNR_RETRY_EXC_ERR"} {
		if kinds[kind] < 3 {
			t.Errorf("%d of 4 programs with %s", kinds[kind], kind)
		}
	}
	if n := strings.Count(text, " failed with "); n != total || n < 12 || received == 0 {
		t.Errorf("%d lines, want %d; %d kinds of receives", n, total, received)
	}
	if t.Failed() {
		t.Logf("%s\n%s", text, trace.messages(t))
	}
	out, err := exec.Command("trace", "-r", file, "rdma_errors").Output()
	// A recording is in the order of time; what two CPUs report at once may come in another order.
	live, replayed := slices.Sorted(strings.Lines(text)), slices.Sorted(strings.Lines(string(out)))
	if err != nil || !slices.Equal(live, replayed) {
		t.Errorf("%v: it printed\n%s\nand its recording prints\n%s", err, text, out)
	}
}

// Was it the link? The events of the port stand beside the error: that it went down, that it came back, and when.
func TestVMScriptRdmaErrorsLink(t *testing.T) {
	path := buildDatapath(t)
	restore := func() { sh(t, "ip link set dummy0 carrier on && ip link set dummy0 up && sleep 0.2") }
	t.Cleanup(restore)
	trace := startCommand(t, exec.Command("trace", "rdma_errors"))
	const others = `(, port 1 had \w+ \S+ before)*`
	for _, test := range []struct{ args, change, status, port string }{
		// The carrier is lost, and the peer is gone.
		{"op=write fail=killed count=3", "ip link set dummy0 carrier off", "RETRY_EXC_ERR", `, port 1 had PORT_ERR (\S+) before`},
		// The link was away for a moment.
		{"op=write fail=killed count=3", "ip link set dummy0 down && sleep 0.2 && ip link set dummy0 up", "RETRY_EXC_ERR",
			others + `, port 1 had PORT_ERR (\S+) before` + others + `, port 1 had PORT_ACTIVE \S+ before` + others},
		// The link is down: rxe then finds no way, and does not even try.
		{"op=write fail=rkey count=3", "ip link set dummy0 down", "", others + `, port 1 had PORT_ERR (\S+) before` + others},
	} {
		restore()
		program := startDatapath(t, path, strings.Fields(test.args)...)
		before := time.Now()
		sh(t, "%s", test.change)
		time.Sleep(time.Second)
		qp := program.finish(t).QPs[0]
		took := time.Since(before)
		status := qp.Sends.firstFailure()
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^\S+ rxe0 qp %d failed with %s \(\d+\).* qp %d port=1 .* vendor_err=0x0(?:, it had \w+ \S+ before)?%s$`,
			qp.Sender, status, qp.Receiver, strings.ReplaceAll(test.port, "(,", "(?:,")))
		waitUntil(t, "there is a line", func() bool { return strings.Contains(trace.wrote(t), fmt.Sprintf("qp %d failed", qp.Sender)) })
		found := line.FindAllStringSubmatch(trace.wrote(t), -1)
		if test.status != "" && status != test.status || len(found) != 1 {
			t.Fatalf("%s fails with %s; want a line like %s:\n%s", test.change, status, line, trace.wrote(t))
		}
		if ago, err := time.ParseDuration(found[0][1]); err != nil || ago < 900*time.Millisecond || ago > took {
			t.Errorf("the port went down %v before, %v after the change: %v", ago, took, err)
		}
		t.Logf("%s: %s", test.change, found[0][0])
	}
	trace.interrupt(t)
}

// latencyLine is a line of rdma_latency --lines: the words of libibverbs-hook (commit db8e5e3), and then ours.
var latencyLine = regexp.MustCompile(`^\[INFO\]: wr_id=(?P<wr_id>\d+), data_size=(?P<bytes>\d+), post_time\(software\)=(?P<posted>\d+), ` +
	`complete_time\(software\)=(?P<completed>\d+), latency\(complete_time - post_time\)=(?P<latency>[\d.]+) us, throughput (?P<throughput>[\d.]+|-) Gbps, ` +
	`difference between the software timestamps of two adjacent CQEs (?P<gap>[\d.]+|-) us, rxe0 qp=(?P<qp>\d+) (?P<opcode>\w+) (?P<status>\w+) ` +
	`retired=(?P<retired>\d+) depth=(?P<depth>\d+) runq=(?P<runq>[\d.]+|-) us datapath/(?P<pid>\d+) cgroup=(?P<cgroup>\S+)\n$`)

// ns returns a number of us with three digits behind the point as ns.
func ns(t *testing.T, us string) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(us, ".")
	n, err := strconv.ParseInt(whole+part, 10, 64)
	if err != nil || len(part) != 3 {
		t.Fatalf("%q is not a number of us with three digits behind the point", us)
	}
	return n
}

// Each line is right by the program's own stamps: with four threads, with requests that ask for no completion, after errors, and while seconds
// pass.
func TestVMScriptRdmaLatencyLines(t *testing.T) {
	path := buildDatapath(t)
	for _, options := range []string{
		"threads=4 count=40 pause=50000 op=write size=4096 lines=1",
		"qps=2 batch=5 signal=5 count=50 pause=150000 sges=3 lines=1",
		"op=write fail=rkey count=20 lines=1",
	} {
		t.Run(options, func(t *testing.T) {
			cgroup, command := inCgroup(t, "lines", append(append([]string{path}, strings.Fields(options)...), "wait=1")...)
			d := startDatapathBy(t, exec.Command(command[0], command[1:]...))
			trace := start(t, "rdma_latency", "--lines")
			totals, requests := d.finishLines(t)
			sent := make(map[string]datapathRequest)
			for _, r := range requests {
				if r.Kind == "send" {
					sent[fmt.Sprintf("%d %d", r.QP, r.Number)] = r
				}
			}
			// CLOCK_REALTIME, in which lines are, less CLOCK_MONOTONIC of the program.
			var monotonic unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
				t.Fatal(err)
			}
			offset := time.Now().UnixNano() - monotonic.Nano()
			last := make(map[string]datapathRequest)
			seconds := make(map[int64]bool)
			bytes, retired := map[string]uint64{}, map[string]uint64{}
			lines := printed(trace.stop(t))
			for _, line := range joinLines(lines) {
				m := latencyLine.FindStringSubmatch(line)
				if m == nil {
					t.Fatalf("a line is %q", line)
				}
				at := func(name string) string { return m[latencyLine.SubexpIndex(name)] }
				count := func(name string) int64 {
					n, err := strconv.ParseInt(at(name), 10, 64)
					if err != nil {
						t.Fatal(err)
					}
					return n
				}
				qp := at("qp")
				key := fmt.Sprintf("%s %d", qp, count("wr_id")&0xffffffff)
				r, ok := sent[key]
				if !ok {
					t.Fatalf("no request is %q", line)
				}
				delete(sent, key)
				latency, posted, completed := ns(t, at("latency")), count("posted"), count("completed")
				if latency < r.C-r.B || latency > r.D-r.A {
					t.Errorf("the latency of %q is not from %d to %d", line, r.C-r.B, r.D-r.A)
				}
				const slack = 5000 // us, of reading two clocks one after the other
				if d := completed - posted - latency/1000; d < 0 || d > 1 || posted < (r.A+offset)/1000-slack || completed > (r.D+offset)/1000+slack {
					t.Errorf("the times of %q do not fit %+v", line, r)
				}
				seconds[completed/1000000] = true
				if before, ok := last[qp]; ok != (at("gap") != "-") {
					t.Errorf("the gap of %q, before it is %+v", line, before)
				} else if ok {
					if gap := ns(t, at("gap")); gap < r.C-before.D || gap > r.D-before.C {
						t.Errorf("the gap of %q is not from %d to %d", line, r.C-before.D, r.D-before.C)
					}
				}
				last[qp] = r
				throughput := "-"
				if r.Status == "SUCCESS" {
					micro := count("bytes") * 8_000_000 / latency
					throughput = fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
				}
				if at("status") != r.Status || at("throughput") != throughput || at("cgroup") != cgroup || at("pid") != fmt.Sprint(d.cmd.Process.Pid) {
					t.Errorf("%q: want %s, %s Gbps, cgroup %s", line, r.Status, throughput, cgroup)
				}
				bytes[qp] += uint64(count("bytes"))
				retired[qp] += uint64(count("retired"))
			}
			if len(sent) > 0 {
				t.Errorf("%d requests have no line", len(sent))
			}
			for _, qp := range totals.QPs {
				if number := fmt.Sprint(qp.Sender); bytes[number] != qp.Sends.Bytes || retired[number] != qp.Sends.Retired {
					t.Errorf("QP %s has %d bytes, %d requests, want %+v", number, bytes[number], retired[number], qp.Sends)
				}
			}
			if strings.Contains(options, "pause") && len(seconds) < 2 {
				t.Error("no second passed")
			}
		})
	}
}

// joinLines makes lines of texts that end somewhere.
func joinLines(texts []string) []string {
	return slices.Collect(strings.Lines(strings.Join(texts, "")))
}

// The report has the percentiles and the counts of the program's own stamps.
func TestVMScriptRdmaLatency(t *testing.T) {
	cgroup, command := inCgroup(t, "report", buildDatapath(t), "op=write", "count=200", "size=1024", "pause=1000", "lines=1", "wait=1")
	d := startDatapathBy(t, exec.Command(command[0], command[1:]...))
	trace := startCommand(t, exec.Command("trace", "rdma_latency", "-i", "60"))
	totals, requests := d.finishLines(t)
	trace.interrupt(t)
	text := trace.wrote(t)
	latencies, gaps := &bounds{}, &bounds{}
	completions := slices.Clone(requests)
	slices.SortFunc(completions, func(a, b datapathRequest) int { return int(a.D - b.D) })
	for i, r := range completions {
		latencies.add(r.C-r.B, r.D-r.A)
		if i > 0 {
			gaps.add(r.C-completions[i-1].D, r.D-completions[i-1].C)
		}
	}
	process := fmt.Sprintf("datapath, %d", d.cmd.Process.Pid)
	qp := fmt.Sprintf("rxe0, %d, ", totals.QPs[0].Sender)
	for _, want := range []string{
		"@latency[" + qp + "RDMA_WRITE, " + process + ", " + cgroup + "]: p50 ", "@throughput[" + qp + "RDMA_WRITE, " + process + ", " + cgroup + "]: ",
		"@depth[" + qp + process + ", " + cgroup + "]: { .count = 200,", "@gap[" + qp + process + ", " + cgroup + "]: p50 ", "@runq[" + process,
	} {
		if strings.Count(text, "\n"+want) != 1 {
			t.Errorf("no line %q", want)
		}
	}
	latencies.check(t, text, "@latency")
	gaps.check(t, text, "@gap")
	if t.Failed() {
		t.Logf("%s\n%s", text, trace.messages(t))
	}
}

// bounds are what each of some times is at least and at most, in ns.
type bounds struct{ least, most []int64 }

func (b *bounds) add(least, most int64) {
	b.least, b.most = append(b.least, least), append(b.most, most)
}

// check compares with the percentiles of a map with one key, which are at most 3.1 % off and printed with three digits.
func (b *bounds) check(t *testing.T, text, name string) {
	t.Helper()
	slices.Sort(b.least)
	slices.Sort(b.most)
	for percentile, part := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
		m := regexp.MustCompile(name + `\[.*` + percentile + ` ([\d.]+\w+)`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s of %s:\n%s", percentile, name, text)
		}
		at := int(math.Ceil(part*float64(len(b.least)))) - 1
		got, err := time.ParseDuration(m[1])
		if low, high := 0.96*float64(b.least[at]), 1.04*float64(b.most[at]); err != nil || float64(got) < low || float64(got) > high {
			t.Errorf("%s of %s is %v, want %v to %v", percentile, name, got, time.Duration(low), time.Duration(high))
		}
	}
}

// A topTable is what rdma_top prints at the end of an interval.
type topTable struct {
	rows []topRow
	rest int // QPs that found no room
}

// topRow has the numbers of a row. Sent and received are bytes per second.
type topRow struct {
	qp                                     string
	sent, received, requests, empty, total float64
	latency                                time.Duration
	depth                                  int
	process                                string
}

var topLine = regexp.MustCompile(`^rxe0 +(\d+) +(\S+) +(\S+) +([\d.]+) +(\S+) +(\d+|-) +([\d.]+) +(\S+)  (.*)\n$`)

// topTables reads the tables.
func topTables(t *testing.T, text string) (tables []topTable) {
	t.Helper()
	for line := range strings.Lines(text) {
		switch m := topLine.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "DEVICE"):
			tables = append(tables, topTable{})
		case m != nil:
			row := topRow{qp: m[1], sent: sizeOf(t, m[2]), received: sizeOf(t, m[3]), total: sizeOf(t, m[8]), process: m[9]}
			var err, err2, err3, err4 error
			row.requests, err = strconv.ParseFloat(m[4], 64)
			row.empty, err4 = strconv.ParseFloat(m[7], 64)
			if m[5] != "-" {
				row.latency, err2 = time.ParseDuration(m[5])
				row.depth, err3 = strconv.Atoi(m[6])
			}
			if err := errors.Join(err, err2, err3, err4); err != nil {
				t.Fatalf("a row is %q: %v", line, err)
			}
			last := &tables[len(tables)-1]
			last.rows = append(last.rows, row)
		case strings.Contains(line, " more QPs"):
			last := &tables[len(tables)-1]
			if _, err := fmt.Sscanf(line, "%d more QPs", &last.rest); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tables
}

// sizeOf reads a size like 4KiB or 5.0GiB.
func sizeOf(t *testing.T, text string) float64 {
	t.Helper()
	digits := strings.TrimRight(text, "KMGTiB")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		t.Fatalf("%q is no size", text)
	}
	factors := map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	if factors[text[len(digits):]] == 0 {
		t.Fatalf("%q is no size", text)
	}
	return n * factors[text[len(digits):]]
}

// Each table has the QPs of its second, the one with the most bytes first, and at the end the program's own totals, on both sides of each
// connection, with the flow, of programs from before, too. What finds no room is counted.
func TestVMScriptRdmaTop(t *testing.T) {
	path := buildDatapath(t)
	programs := []*datapath{
		startDatapath(t, path, "count=150", "size=2048", "pause=20000"),
		startDatapath(t, path, "op=read", "count=150", "size=64", "pause=20000"),
	}
	trace, one := startCommand(t, exec.Command("trace", "rdma_top")), startCommand(t, exec.Command("trace", "rdma_top", "--n", "1"))
	programs = append(programs, startDatapath(t, path, "op=write", "count=150", "size=512", "qps=2", "pause=20000"))
	var totals []datapathTotals
	for _, d := range programs {
		fmt.Fprintln(d.in)
	}
	for _, d := range programs {
		totals = append(totals, d.finish(t))
	}
	time.Sleep(2 * time.Second) // the last interval with completions is over
	trace.interrupt(t)
	one.interrupt(t)
	text := trace.wrote(t)
	tables := topTables(t, text)
	last := make(map[string]topRow)
	sums, empty := make(map[string]float64), make(map[string]float64)
	for _, table := range tables {
		if table.rest > 0 {
			t.Errorf("%d QPs find no room", table.rest)
		}
		for i, row := range table.rows {
			if i > 0 && row.sent+row.received > 1.01*(table.rows[i-1].sent+table.rows[i-1].received) {
				t.Errorf("QP %s has more than the one above", row.qp)
			}
			last[row.qp] = row
			sums[row.qp] += row.requests
			process, _, _ := strings.Cut(row.process, " ")
			empty[process] += row.empty
		}
	}
	if len(tables) < 3 {
		t.Errorf("%d tables", len(tables))
	}
	qps := 0
	for i, total := range totals {
		// Polls that are empty come before completions, of a second each.
		process, want := fmt.Sprintf("datapath/%d", programs[i].cmd.Process.Pid), float64(total.EmptyBefore)
		if math.Abs(empty[process]-want) > want/5 || want == 0 {
			t.Errorf("%s: the empty polls of all tables add up to %v, want %v", process, empty[process], want)
		}
		for _, qp := range total.QPs {
			for _, side := range []struct {
				number, peer uint64
				bytes        uint64
				requests     uint64
			}{{qp.Sender, qp.Receiver, qp.Sends.Bytes, qp.Sends.Posts}, {qp.Receiver, qp.Sender, qp.Receives.By["RECV SUCCESS"] * 2048, 0}} {
				row, ok := last[fmt.Sprint(side.number)]
				if ok != (side.bytes > 0) {
					t.Errorf("QP %d with %d bytes is in tables: %t", side.number, side.bytes, ok)
				}
				if side.bytes == 0 {
					continue
				}
				qps++
				process := fmt.Sprintf("datapath/%d ::ffff:10.9.0.1 -> ::ffff:10.9.0.1 qp %d", programs[i].cmd.Process.Pid, side.peer)
				if row.total != float64(side.bytes) || row.process != process {
					t.Errorf("QP %d: %+v, want %d bytes of %s", side.number, row, side.bytes, process)
				}
				if side.requests > 0 && row.latency == 0 {
					t.Errorf("QP %d has no latency: %+v", side.number, row)
				}
				// The sum of rates of a second each.
				if want := float64(side.requests); math.Abs(sums[row.qp]-want) > want/5 {
					t.Errorf("QP %d: the requests of all tables add up to %v, want %v", side.number, sums[row.qp], want)
				}
			}
		}
	}
	if len(last) != qps {
		t.Errorf("%d QPs in tables, want %d", len(last), qps)
	}
	full := 0
	for _, table := range topTables(t, one.wrote(t)) {
		if len(table.rows) > 1 {
			t.Errorf("--n 1 has %d rows", len(table.rows))
		}
		if table.rest == qps-1 {
			full++
		}
	}
	if full == 0 {
		t.Errorf("no table has one of %d QPs:\n%s", qps, one.wrote(t))
	}
	if t.Failed() {
		t.Logf("%s\n%s", text, trace.messages(t))
	}
}

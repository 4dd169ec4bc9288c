package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"trace"
	"trace/lang/metrics/family"
)

// nvmeRecording has 500 reads and writes of a disk.
const nvmeRecording = "scripts/testdata/nvme_latency.rec"

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A program runs on a recording, and its map is read.
func Example() {
	host := must(trace.OpenRecording(nvmeRecording))
	defer host.Close()
	program := must(host.Compile("slow", "nvme:complete_rq / latency > $above / { @[opcode] = count() }; param above = 2ms", map[string]string{"above": "4ms"}))
	run := must(program.Start(context.Background()))
	defer run.Close()
	check(run.Wait())
	for row, err := range run.Rows("@") {
		check(err)
		fmt.Println(row.Key[0], row.Value)
	}
	// Output:
	// read 134
	// write 125
}

// A histogram, percentiles and statistics have Go types. Durations are in nanoseconds.
func ExampleRun_Rows() {
	host := must(trace.OpenRecording(nvmeRecording))
	defer host.Close()
	program := must(host.Compile("latency", `nvme:complete_rq {
	@h[disk, op = opcode] = hist(latency)
	@q = quantile(latency, 50, 99)
	@s = stats(latency)
	@r = rate(bytes)
	@t = tseries(latency, 1s, 2, "max")
}`, nil))
	run := must(program.Start(context.Background()))
	defer run.Close()
	check(run.Wait())
	fmt.Println(program.Maps(), must(run.Columns("@h")))
	for row, err := range run.Rows("@h") {
		check(err)
		h := row.Value.(trace.Histogram)
		fmt.Printf("%v: %d values, half of them below %.2g %s, %d of them from %g to %g\n",
			row.Key, h.Count, h.Quantile(0.5), h.Unit, h.Buckets[0].Count, h.Buckets[0].Lower, h.Buckets[0].Upper)
	}
	for _, name := range run.Maps()[1:] {
		for row, err := range run.Rows(name) {
			check(err)
			switch v := row.Value.(type) {
			case trace.Quantiles:
				p99 := v.All[1]
				fmt.Println(v.Count, "values,", p99.P, "% at most", p99.Value, p99.Below, p99.Above)
			case trace.Stats:
				fmt.Println(v.Count, v.Average, v.Total)
			case trace.Rate:
				fmt.Println(v.Total, int(v.PerSecond))
			case []trace.Point:
				fmt.Println(v[0].Start.UTC().Format("15:04:05"), v[0].Value)
			}
		}
	}
	// Output:
	// [@h @q @s @r @t] [{disk} {op}]
	// [nvme0n1 read]: 300 values, half of them below 3.5e+06 ns, 2 of them from 131072 to 262144
	// [nvme0n1 write]: 200 values, half of them below 6.1e+06 ns, 3 of them from 262144 to 524288
	// 500 values, 99 % at most 34.603007ms false false
	// 500 5.728923ms 2.864461923s
	// 4744KiB 310768
	// 16:11:55 49.710493ms
}

// What a program prints and selects comes with its types.
func ExampleRun_Records() {
	host := must(trace.OpenRecording(flowsRecording))
	defer host.Close()
	program := must(host.Compile("flows", `ib:modify_qp / qp.state == RTR /
ib:destroy_qp { printf("%s ended\n", dev); print(latency); @[comm] = count() }
end { print(@) }`, nil))
	run := must(program.Start(context.Background(), trace.Records(), trace.Fields("qp.num", "sgid", "cgroup")))
	defer run.Close()
	for r, err := range run.Records(context.Background()) {
		check(err)
		switch {
		case r.Probe != "":
			fmt.Println(r.Probe, r.Field("qp.num"), r.Field("sgid"), r.Field("cgroup").(trace.Cgroup).Path)
		case r.Map != "":
			fmt.Println(r.Map, r.Rows)
		case r.Value != nil:
			fmt.Printf("%T\n", r.Value)
		default:
			fmt.Print(r.Text)
		}
	}
	// Output:
	// ib:modify_qp 17 ::ffff:10.9.0.1 /
	// ib:modify_qp 18 ::ffff:10.9.0.1 /
	// rxe0 ended
	// time.Duration
	// rxe0 ended
	// time.Duration
	// @ [{[ibv_rc_pingpong] 2}]
}

// Which events the largest values of a histogram came from. Package trace/lang/metrics gives them to Prometheus.
func ExampleExemplars() {
	host := must(trace.OpenRecording(nvmeRecording))
	defer host.Close()
	program := must(host.Compile("reads", "nvme:complete_rq / opcode == read / { @ = hist(latency) }", nil))
	run := must(program.Start(context.Background(), trace.Exemplars()))
	defer run.Close()
	check(run.Wait())
	families := family.New(family.Config{Program: "reads"}).Families(must(run.Snapshot()))
	for _, e := range families[0].Series[0].Buckets.Exemplars {
		fmt.Printf("%.4f s, thread %d at %s\n", e.Value, e.TID, e.Time.UTC().Format("15:04:05.000000"))
	}
	// Output:
	// 0.0063 s, thread 223 at 16:11:56.387276
	// 0.0126 s, thread 223 at 16:11:56.331363
	// 0.0252 s, thread 223 at 16:11:55.664022
	// 0.0503 s, thread 223 at 16:11:55.606948
}

// What happened to the events, and what is missing.
func ExampleRun_Losses() {
	host := must(trace.OpenRecording(nvmeRecording))
	defer host.Close()
	program := must(host.Compile("reads", "nvme:complete_rq / opcode == read / { @[slba] = count() }", nil))
	run := must(program.Start(context.Background(), trace.MapSize(100)))
	defer run.Close()
	check(run.Wait())
	for _, s := range must(run.Stats()) {
		fmt.Println(s.Probe, s.Variant, s.Seen, s.Rejected, s.Delivered, s.Lost.Total(), s.Undecoded)
	}
	fmt.Println(len(must(run.Snapshot()).Tables), "map")
	l := must(run.Losses())
	fmt.Println(l.Any(), l.Events, l.Maps)
	// Output:
	// nvme:complete_rq recorded 500 200 500 0 0
	// 1 map
	// true 0 [{@ 100 200 0 0}]
}

// Where threads were off the CPU, for how long.
func ExampleRun_Profiles() {
	host := must(trace.OpenRecording("scripts/testdata/offcpu.rec"))
	defer host.Close()
	program := must(host.Compile("blocked", "sched:offcpu { @[kstack] = sum(blocked) }", nil))
	run := must(program.Start(context.Background()))
	defer run.Close()
	check(run.Wait())
	for _, p := range must(run.Profiles()) {
		longest := p.Samples[0]
		fmt.Println(time.Duration(longest.Value).Round(time.Second), longest.Frames[len(longest.Frames)-1])
	}
	// Output:
	// 2s folio_wait_bit_common
}

// Names of functions may take long, so they are found apart from the counts.
func ExampleRun_Counted() {
	host := must(trace.OpenRecording("scripts/testdata/offcpu.rec"))
	defer host.Close()
	program := must(host.Compile("blocked", "sched:offcpu { @[kstack] = sum(blocked) }", nil))
	run := must(program.Start(context.Background()))
	defer run.Close()
	check(run.Wait())
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	all := must(run.Counted())
	check(run.Name(ctx, all))
	longest := all[0].Samples[0]
	fmt.Println(longest.Frames[len(longest.Frames)-1])
	fmt.Println(host.Names().Left, "files without names")
	// Output:
	// folio_wait_bit_common
	// 0 files without names
}

// A mistake in a program has its place, and advice.
func ExampleError() {
	host := must(trace.OpenRecording(nvmeRecording))
	defer host.Close()
	_, err := host.Compile("slow.trace", "nvme:complete_rq / latencey > 2ms /", nil)
	var mistake *trace.Error
	if errors.As(err, &mistake) {
		fmt.Println(mistake.File, mistake.Line, mistake.Col, mistake.Msg)
		fmt.Println(mistake.Help)
	}
	program := must(host.Compile("slow.trace", "nvme:complete_rq { @slow = max(latency) }", nil))
	fmt.Println(program.Check(trace.MapSize(100)), program.Probes(), program.Mistake("@slow", "it is no metric").Col)
	// Output:
	// slow.trace 1 20 no field latencey in nvme:complete_rq
	// did you mean "latency"?
	// <nil> [nvme:complete_rq] 20
}

// A recording has only its own probes.
func ExampleHost_Available() {
	host := must(trace.OpenRecording(flowsRecording))
	defer host.Close()
	for _, s := range must(host.Available("ib:*_qp")) {
		fmt.Println(s.Probe, s.Variant, s.Err, s.Notes)
	}
	// Output:
	// ib:create_qp recorded <nil> []
	// ib:destroy_qp recorded <nil> []
	// ib:modify_qp recorded <nil> []
}

// Output writes as the command does.
func ExampleOutput() {
	host := must(trace.OpenRecording(flowsRecording))
	defer host.Close()
	program := must(host.Compile("states", "ib:modify_qp / qp.state == RTR /", nil))
	run := must(program.Start(context.Background(), trace.Output(os.Stdout, "json"), trace.Fields("qp.num", "qp.state")))
	check(run.Wait())
	check(run.Close())
	// Output:
	// {"type":"event","probe":"ib:modify_qp","time":"2026-11-23T22:45:17.989091863Z","data":{"qp":{"num":17,"state":"RTR"}}}
	// {"type":"event","probe":"ib:modify_qp","time":"2026-11-23T22:45:18.003680381Z","data":{"qp":{"num":18,"state":"RTR"}}}
}

// On this machine: what a probe lacks here, and a recording of 64 KiB requests to disks by one process.
func ExampleOpen() {
	host, err := trace.Open(trace.WithBTF("/usr/lib/debug/btf"), trace.WithLogger(slog.Default()), trace.WithUnsafe())
	check(err)
	defer host.Close()
	for _, s := range must(host.Available("nvme:*")) {
		switch {
		case errors.Is(s.Err, trace.ErrPermission), errors.Is(s.Err, trace.ErrModule), errors.Is(s.Err, trace.ErrUnsupported):
			fmt.Println(s.Err)
		}
	}
	file := must(os.Create("large.rec"))
	check(host.Record(context.Background(), file, "nvme:setup_cmd / bytes > 64KiB /"))

	program := must(host.Compile("disks", "nvme:complete_rq { @[disk] = sum(bytes) }", nil))
	run := must(program.Start(context.Background(), trace.PID(os.Getpid()), trace.Children(), trace.Comm("fio"), trace.PGID(1), trace.PIDNS(4026531836),
		trace.CgroupPath("/system.slice"), trace.Buffer(16<<20), trace.LeaveOut()))
	fmt.Println(run.Started())
	for _, s := range run.LeftOut() {
		fmt.Println(s.Err)
	}
	check(run.Retry(context.Background())) // perhaps a module was loaded
	<-run.Done()
	check(run.Stop())
	for row := range run.Rows("@") {
		fmt.Println(row.Key, row.Value.(trace.Bytes))
	}
	check(run.Close())
}

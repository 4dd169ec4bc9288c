//go:build vm

package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trace/scripts"
)

// replayTests are a script, the flags of the example in its help, work for it, and what it must print.
var replayTests = []struct {
	script string
	work   func(t *testing.T, trace *recorder)
	shows  []string
}{
	{"cachestat", func(t *testing.T, trace *recorder) {
		f := coldFile(t, filepath.Join(mountDisk(t), "table"), 64)
		hits := regexp.MustCompile(`(?m)^[0-9:]{8} +[1-9]`)
		reports := func() int { return len(hits.FindAllString(trace.wrote(t), -1)) }
		seen := reports()
		waitUntil(t, "there is a report", func() bool { readPages(t, f, 0, 1); return reports() > seen })
		drop(t, f)
		for page := range 64 {
			readPages(t, f, page, 1)
		}
		seen = reports()
		waitUntil(t, "there is another one", func() bool { return reports() > seen })
	}, []string{`(?m)^@files\[nvme0n1, table\]: \S+$`}},
	{"hung", func(t *testing.T, _ *recorder) { hang(t, 2) }, []string{`(?m)^\S+ dd/\d+ blocked for \S+ for a device cgroup=/\n(.*\n)*? +file_write_and_wait_range`, `(?m)^1 task$`}},
	{"noisy", func(t *testing.T, _ *recorder) { disturb(t) }, []string{`(?m)^/victim: waited \S+ for .*/batch \d+%.*; throttled for \S+, \d+ times$`}},
	{"biolatency", snooped, []string{`(?m)^@bytes\[nvme0n1, read, /snooped\]: 32\dKiB$`, `(?m)^@bytes\[nvme0n1, write, /snooped\]: 256KiB$`}},
	{"biosnoop", snooped,
		[]string{`(?m)^\S+ nvme0n1 +read +16KiB @\d+ +dd/\d+ of /snooped queue=\S+ device=\S+ OK$`, `(?m)^\S+ nvme0n1 +write .* of /snooped `}},
	{"counters", func(t *testing.T, _ *recorder) {
		pingPong(t, false)
		program := startDatapath(t, buildDatapath(t), "fail=killed", "op=write", "count=3")
		sh(t, "ip link set dummy0 carrier off")
		t.Cleanup(func() { sh(t, "ip link set dummy0 carrier on") })
		program.finish(t)
		time.Sleep(300 * time.Millisecond) // the reading after it
	}, []string{`(?m)^\S+ rxe0 port 1: retry_exceeded_err \+\d+ in \S+ \(\d+/s\), now \d+$`, `(?m)^\S+ rxe0 port 1: PORT_ERR$`,
		`rxe0: ib:modify_qp failed with -EINVAL for ibv_rc_pingpong/\d+ after`, `(?m)^@total\[rxe0, 1, HW_COUNTERS, sent_pkts\]: \d+`}},
	{"nvme_latency", func(t *testing.T, _ *recorder) {
		small, _ := namespaces(t)
		fio(t, small, 300, 200)
	}, []string{`@all\[nvme0, read, any size\]: \{ \.count = 300,`, `@all\[nvme0, write, any size\]: \{ \.count = 200,`}},
	{"nvme_stuck", holdBack, []string{`(?m)^\S+ nvme0 qid=\d+ cid=\d+ dd/\d+ read of nvme0n\d nsid=1 slba=40 nlb=8, in flight for 2\.`}},
	{"nvme_trace", func(t *testing.T, _ *recorder) {
		small, _ := namespaces(t)
		sh(t, "dd if=/dev/%s of=/dev/null bs=4k count=1 skip=256 iflag=direct status=none", small.disk)
		sh(t, "! nvme read /dev/%s -s 99999999999 -c 0 -z 4096 >/dev/null 2>&1", small.disk)
	}, []string{`Submit .* slba=2048, nlb=8, .* dd/`, `Complete .* slba=2048, nlb=8, .* \(success\)`, `Complete .* \(lba_range\)`}},
	{"offcpu", func(t *testing.T, _ *recorder) { hang(t, 1) },
		[]string{`(?m)^\S+ dd/\d+ off the CPU for \S+: blocked for \S+ \(UNINTERRUPTIBLE, for a device\), ready for \S+, woken by an interrupt cgroup=/$`}},
	{"oomkill", func(t *testing.T, _ *recorder) { exhaustMemory(t) }, []string{
		`(?m)^\S+ killed tail/\d+ in /small/single by the limit of /small, 20MiB: anon 1\S+MiB, .*, oom_score_adj 500, asked by tail/\d+ in /small/single$`,
		`(?m)^\S+ killed sleep/\d+ in /small/group by its own limit of 16MiB, with its group: .*, asked by tail/\d+ in /small/group$`}},
	{"reclaim", func(t *testing.T, _ *recorder) {
		reachLimits(t)
		fragment(t)
	}, []string{`(?m)^@reclaim\[/limited, /limited\]: \{ \.count = \d+,`, `(?m)^@compact\[/, 9, \w+\]: `, `(?m)^@freed\[/limited, /limited\]: \d`}},
	{"processvm", func(t *testing.T, trace *recorder) {
		startMemory(t, coldFile(t, filepath.Join(mountDisk(t), "mapped"), 64).Name()) // its work would take longer than an interval
		reports := func() int { return strings.Count(trace.wrote(t), "\n") }
		seen := reports()
		waitUntil(t, "there is a report", func() bool { sh(t, "true"); return reports() > seen })
	}, []string{`(?m)^at the beginning: trace.test/\d+ \S+: private_anon `, `(?m)^\S+ rest/\d+ \S+ \(\+\S+\):.* stack \+128KiB in 1, heap \+132KiB in 1, `,
		`(?m)^at the end: rest/\d+ 2\d+KiB \(\+\S+\): .*, heap 132KiB \(\+132KiB\), stack 132KiB \(\+132KiB\), by no call that was seen \+\d+KiB$`}},
	{"reg_mr", func(t *testing.T, _ *recorder) { registerInLimit(t) },
		[]string{`(?m)^\S+ rxe0 register/\d+ registered 8MiB in \S+: waited for a CPU \S+, \d+ page faults \d\S+, reclaim \S+ in \d+ times`}},
	{"rdma_errors", func(t *testing.T, _ *recorder) {
		pingPong(t, false)
		program := startDatapath(t, buildDatapath(t), "fail=killed", "op=write", "count=3")
		sh(t, "ip link set dummy0 carrier off")
		t.Cleanup(func() { sh(t, "ip link set dummy0 carrier on") })
		program.finish(t)
	}, []string{`(?m)rxe0 qp \d+ failed with RETRY_EXC_ERR \(12\), the peer does not answer: datapath/\d+ cgroup=\S+ ::ffff:10\.9\.0\.1 -> ::ffff:10\.9\.0\.1 qp \d+ port=1 age=\S+ timeout=8 .*, port 1 had PORT_ERR \S+ before`,
		`(?m)^@completions\[rxe0, \d+, RETRY_EXC_ERR, datapath, \d+\]: 1$`, `(?m)^@completions\[rxe0, \d+, WR_FLUSH_ERR, datapath, \d+\]: 2$`,
		`rxe0 ib:modify_qp failed with -EINVAL for ibv_rc_pingpong/\d+ after`, `(?s)@failed\[-EINVAL, ib:modify_qp, .*ioctl\+.*\]: \d`}},
	{"rdma_flows", func(t *testing.T, _ *recorder) { pingPong(t, true) },
		[]string{`ready rxe0 RC ::ffff:10\.9\.0\.1 qp \d+ -> ::ffff:10\.9\.0\.1 qp \d+ mtu=1024 ibv_rc_pingpong/`, `ended rxe0 qp .* destroyed in RTS`, `@calls\[ib:modify_qp\]: 6`}},
	{"rdma_latency", func(t *testing.T, trace *recorder) {
		bandwidth := func() {
			args := []string{"-d", "rxe0", "-x", "1", "-n", "300", "-s", "4096"}
			server := onCPU(0, append([]string{"ib_write_bw"}, args...)...)
			var output strings.Builder
			server.Stdout, server.Stderr = &output, &output
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { server.Process.Kill() })
			waitForListener(t)
			if out, err := onCPU(0, append(append([]string{"ib_write_bw"}, args...), "10.9.0.1")...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := server.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, &output)
			}
		}
		bandwidth()
		trace.waitToSay(t, "is followed from now on")
		bandwidth()
	}, []string{`(?m)^@latency\[rxe0, \d+, RDMA_WRITE, ib_write_bw, \d+, \S+\]: p50 `, `(?m)^@depth\[rxe0, \d+, ib_write_bw, \d+, \S+\]: \{ \.count = 3,`}},
	{"rdma_monitor", func(t *testing.T, trace *recorder) {
		reports := func() int { return strings.Count(trace.wrote(t), "Mean Latency and Failures") }
		waitUntil(t, "there is a report", func() bool { return reports() == 1 })
		pingPong(t, true)
		pingPong(t, false)
		if reports() > 1 {
			t.Fatal("this took longer than an interval")
		}
		waitUntil(t, "there is another one", func() bool { return reports() == 2 })
	}, []string{`(?m)^  modify_qp +: 8$`, `(?m)^  modify_qp +: -EINVAL, [12] times$`, `(?m)^QP Operations:  [1-9]`}},
	{"rdma_stuck", func(t *testing.T, trace *recorder) {
		path := buildDatapath(t)
		programs := []*datapath{startDatapath(t, path, "qps=2"), startDatapath(t, path, "fail=stuck", "count=3", "hold=5")}
		trace.waitToSay(t, "is followed from now on")
		for _, p := range programs {
			p.finish(t)
		}
	}, []string{`(?m)^\S+ rxe0 qp \d+ of datapath/\d+ cgroup=/: 3 requests wait for (2|2\.\d+|1\.9\d)s at least, \S+10\.9\.0\.1 -> \S+10\.9\.0\.1 qp \d+ port=1 timeout=14 .* rnr_retry=7 \(no limit\)$`}},
	{"rdma_top", func(t *testing.T, trace *recorder) {
		path := buildDatapath(t)
		programs := []*datapath{startDatapath(t, path, "size=4096", "count=100"), startDatapath(t, path, "op=write", "size=1024", "qps=2", "count=50")}
		trace.waitToSay(t, "is followed from now on")
		tables := func() int { return strings.Count(trace.wrote(t), "DEVICE") }
		seen := tables()
		waitUntil(t, "there is a table", func() bool { return tables() > seen })
		for _, p := range programs {
			p.finish(t)
		}
		if tables() > seen+1 {
			t.Fatal("this took longer than an interval")
		}
		waitUntil(t, "there is another one", func() bool { return tables() > seen+1 })
	}, []string{`(?m)^rxe0 +\d+ +\S+ +0B +\S+ +\S+ +\d+ +\S+ +400KiB  datapath/\d+ ::ffff:10\.9\.0\.1 -> ::ffff:10\.9\.0\.1 qp \d+$`,
		`(?m)^rxe0 +\d+ +0B +\S+ +0 +- +- +\S+ +400KiB  datapath/`, `(?m)^rxe0 +\d+ +\S+ +0B +\S+ +\S+ +\d+ +\S+ +50KiB  datapath/`}},
	{"runqlat", func(t *testing.T, _ *recorder) { keepBusy(t, "/sys/fs/cgroup/waits", 3, 1) },
		[]string{`(?m)^/waits: \d+ waits, \S+ in total, \S+ on average, \S+ at most; \d+ of at least 1ms, after \S+ \d+%`}},
	{"triage", func(t *testing.T, _ *recorder) { provoke(t) }, unusual},
}

// beforeReplay is what must be there when a script begins.
var beforeReplay = map[string]func(t *testing.T){
	"noisy":   func(t *testing.T) { limited(t, "victim", 5000) },
	"runqlat": func(t *testing.T) { cgroupFolder(t, "waits") },
}

// TestVMScriptReplay runs each script that comes with trace and records the same events at the same moment: the replay prints exactly what
// the script printed. Nothing happens while trace starts and stops, or when an interval ends: such an event may be in the kernel's maps
// already and in the buffer still, so it has no place in the order of events.
//
// The recordings are in the log: make recordings puts those into scripts/testdata.
func TestVMScriptReplay(t *testing.T) {
	for _, test := range replayTests {
		t.Run(test.script, func(t *testing.T) {
			if test.script == "rdma_stuck" {
				skipWhereRxeLocksUp(t)
			}
			if before := beforeReplay[test.script]; before != nil {
				before(t)
			}
			file := filepath.Join(t.TempDir(), "recording")
			args := append([]string{"--record", file}, exampleArgs(t, test.script)...)
			trace := startCommand(t, exec.Command("trace", args...))
			test.work(t, trace)
			trace.end(t) // an event that the kernel missed, as 7.2 may, is in neither
			live := trace.wrote(t)
			for _, want := range test.shows {
				if !regexp.MustCompile(want).MatchString(live) {
					t.Errorf("nothing like %s in\n%s", want, live)
				}
			}
			out, err := exec.Command("trace", append([]string{"-r", file}, exampleArgs(t, test.script)...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != live {
				t.Errorf("it printed\n%s\nand its recording prints\n%s", live, out)
			}
			logRecording(t, file, "scripts/testdata/"+test.script+".rec")
		})
	}
	if len(replayTests) != len(scripts.All()) {
		t.Errorf("%d of %d scripts are tested", len(replayTests), len(scripts.All()))
	}
}

// logRecording writes a recording into the log, from where make recordings takes it.
func logRecording(t *testing.T, file, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(data))
	fmt.Printf("\nRECORDING %s %s\n", to, base64.StdEncoding.EncodeToString(data))
}

// wrote is what trace wrote to its standard output so far.
func (tr *recorder) wrote(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(tr.events)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// holdBack keeps a read in flight for three looks of nvme_stuck. It completes just after a look, long before the next one.
func holdBack(t *testing.T, trace *recorder) {
	small, _ := namespaces(t)
	fio(t, small, 10, 10)                                                // none of them is stuck
	writeFile(t, "/sys/block/"+small.disk+"/queue/io_timeout", "120000") // what waits long must not be polled for
	maskInterrupts(t, "nvme0", true)
	t.Cleanup(func() { maskInterrupts(t, "nvme0", false) })
	dd := exec.Command("dd", "if=/dev/"+small.disk, "of=/dev/null", "bs=4k", "count=1", "skip=5", "iflag=direct", "status=none")
	if err := dd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it was seen three times", func() bool { return strings.Count(trace.wrote(t), "dd/") >= 3 })
	maskInterrupts(t, "nvme0", false)
	if err := dd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// pingPong connects two processes; without a GID they fail. Both are on one CPU, so that the order of their events is certain.
func pingPong(t *testing.T, withGID bool) {
	t.Helper()
	args := []string{"ibv_rc_pingpong", "-d", "rxe0", "-n", "10"}
	if withGID {
		args = append(args, "-g", "1")
	}
	server := onCPU(0, args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	waitForListener(t)
	out, err := onCPU(0, append(args, "10.9.0.1")...).CombinedOutput()
	serverErr := server.Wait()
	if (err == nil) != withGID || (serverErr == nil) != withGID {
		t.Fatalf("client: %v, server: %v\n%s", err, serverErr, out)
	}
}

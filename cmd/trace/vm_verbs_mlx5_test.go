//go:build vm

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mlx5Runs are the options of datapath, and the opcode that it posts; v0 is the older layout of completions. A queue of requests has 512 places
// or a few more.
var mlx5Runs = []struct{ options, opcode string }{
	{"count=600", "SEND"},
	{"v0 op=write batch=7 signal=7 count=210 sges=3", "RDMA_WRITE"},
	{"op=write_imm sges=3 batch=5", "RDMA_WRITE_WITH_IMM"},
	{"v0 op=read count=50", "RDMA_READ"},
	{"op=fadd count=50", "ATOMIC_FETCH_AND_ADD"},
	{"v0 inline=1 sges=2 size=8 count=50", "SEND"},
	{"qps=2 threads=2 onecq=1 entries=1 count=50", "SEND"},
	{"api=wr count=600", "SEND"},
	{"v0 api=wr op=write_imm sges=4 inline=1 size=8", "RDMA_WRITE_WITH_IMM"},
	{"api=wr op=read count=50", "RDMA_READ"},
	{"api=wr op=fadd count=50", "ATOMIC_FETCH_AND_ADD"},
	{"cq=ex count=300", "SEND"},
	{"v0 cq=ex api=wr op=write batch=7 signal=7 count=210", "RDMA_WRITE"},
}

// startOnMlx5 starts datapath with libmlx5 in place of rxe0's own provider.
func startOnMlx5(t *testing.T, path, device, options string) *datapath {
	t.Helper()
	options, old := strings.CutPrefix(options, "v0 ")
	cmd := exec.Command(path, append(strings.Fields(options), "wait=1")...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+device)
	if old {
		cmd.Env = append(cmd.Env, "CQE_VERSION=0")
	}
	return startDatapathBy(t, cmd)
}

// programCounts are what a process does: its work requests, receives and completions.
type programCounts struct {
	sends, receives  map[string]uint64 // by opcode; by whether they are for an SRQ
	sent, received   uint64            // bytes
	completions      map[string]uint64 // by opcode and status
	completed        uint64            // of send requests, which retire all
	retired, retires uint64            // requests, and their bytes
}

// programTotals counts by a key.
func programTotals(key string) string {
	return strings.ReplaceAll(`
		verbs:post_send { @sends[KEY, opcode] = count(); @sent[KEY] = sum((uint64)bytes) }
		verbs:post_recv { @receives[KEY, srq] = count() }
		verbs:poll_cq { @completions[KEY, opcode, status] = count() }
		verbs:poll_cq / opcode in [RECV, RECV_RDMA_WITH_IMM] / { @received[KEY] = sum((uint64)bytes) }
		verbs:complete { @completed[KEY] = count(); @retired[KEY] = sum(retired); @retires[KEY] = sum((uint64)bytes) }`, "KEY", key)
}

// addTo adds the counts to the rows of the maps of programTotals, as they are printed.
func (c programCounts) addTo(rows map[string]uint64, key any) {
	for name, n := range map[string]uint64{"sent": c.sent, "received": c.received, "completed": c.completed, "retired": c.retired, "retires": c.retires} {
		rows[fmt.Sprintf("@%s[%v]", name, key)] += n
	}
	for name, counts := range map[string]map[string]uint64{"sends": c.sends, "receives": c.receives, "completions": c.completions} {
		for rest, n := range counts {
			rows[fmt.Sprintf("@%s[%v, %s]", name, key, rest)] += n
		}
	}
	maps.DeleteFunc(rows, func(_ string, n uint64) bool { return n == 0 })
}

// sameCounts compares what trace counts with what the programs do. Nothing may be lost.
func sameCounts(t *testing.T, trace *tool, want map[string]uint64) {
	t.Helper()
	compareCounts(t, countsOf(trace.stop(t)), want)
	if text := trace.out.String(); t.Failed() || strings.Contains(text, "lost") {
		t.Error(text)
	}
}

func compareCounts(t *testing.T, got, want map[string]uint64) {
	t.Helper()
	for name := range maps.Keys(want) {
		if got[name] != want[name] {
			t.Errorf("trace counts %s: %d, the programs %d", name, got[name], want[name])
		}
	}
	for name, n := range got {
		if _, is := want[name]; !is {
			t.Errorf("trace counts %s: %d, the programs nothing", name, n)
		}
	}
}

// processCounts returns its counts, by process.
func (totals datapathTotals) processCounts(opcode string) programCounts {
	counts := programCounts{sends: map[string]uint64{}, receives: map[string]uint64{}, completions: map[string]uint64{}}
	for _, qp := range totals.QPs {
		counts.sends[opcode] += qp.Sends.Posts
		counts.sent += qp.Sends.Bytes
		counts.receives["false"] += qp.Receives.Posts
		counts.received += qp.Receives.CompletedBytes
		counts.retired += qp.Sends.Retired
		counts.retires += qp.Sends.Bytes
		for by, n := range qp.Sends.By {
			counts.completions[strings.Replace(by, " ", ", ", 1)] += n
			counts.completed += n
		}
		for by, n := range qp.Receives.By {
			counts.completions[strings.Replace(by, " ", ", ", 1)] += n
		}
	}
	return counts
}

// What libmlx5 posts and polls is what the program counts, with both layouts of its completions. The kernel sees none of its objects, so the
// programs begin before trace.
func TestVMDatapathMlx5(t *testing.T) {
	path, device := buildDatapath(t), filepath.Join(t.TempDir(), "mlx5_device.so")
	sh(t, "gcc -Wall -Werror -O2 -shared -fPIC -o %s testdata/vm/mlx5_device.c -ldl -lpthread", device)
	var running []*datapath
	for _, run := range mlx5Runs {
		running = append(running, startOnMlx5(t, path, device, run.options))
	}
	if seen := sh(t, "rdma res show qp | grep datapath || true"); seen != "" {
		t.Fatalf("the programs do not use libmlx5, as the kernel has\n%s", seen)
	}
	trace := startTool(t, "ttached", "trace", programTotals("pid"))
	want := make(map[string]uint64)
	for i, d := range running {
		d.finish(t).processCounts(mlx5Runs[i].opcode).addTo(want, d.cmd.Process.Pid)
	}
	sameCounts(t, trace, want)
}

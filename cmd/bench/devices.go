package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// This file measures the probes of devices: what a program costs for each NVMe command and each verb by the kernel's account, and how long
// a start takes with modules and their types. It runs in a virtual machine with an emulated CPU: only the ratios mean something.

// So many operations that the first ones, before the emulation has translated a program, weigh little: the mean of the first 150 calls of a
// verb was several times the mean of later ones.
const (
	nvmeReads = `dd if=/dev/nvme0n1 of=/dev/null bs=4k count=3000 iflag=direct`
	// perftest connects pairs of QPs, with three changes of the state of each. It listens on port 18515, and -F lets it go on where the
	// CPU's clock cannot be measured.
	modifyQPs = `ib_send_bw -F -d rxe0 -x 1 -q 100 -n 5 & until grep -Eq ':4853 0+:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done
		ib_send_bw -F -d rxe0 -x 1 -q 100 -n 5 10.9.0.1 && wait`
)

// deviceWorkloads returns the workloads of NVMe, disks and RDMA. bpftrace has no names for what they measure: it uses the tracepoints of
// nvme_core and of the block layer, and kprobes on ib_core.
func deviceWorkloads() []workload {
	return []workload{
		{
			name:     "NVMe command, `@ = count()`",
			trace:    "nvme:complete_rq { @ = count() }",
			bpftrace: "tracepoint:nvme:nvme_complete_rq { @ = count(); }",
			command:  nvmeReads,
		},
		{
			name:  "NVMe command, `@[qid] = hist(latency)`",
			trace: "nvme:complete_rq { @[qid] = hist(latency) }",
			bpftrace: `tracepoint:nvme:nvme_setup_cmd { @start[args.ctrl_id, args.qid, args.cid] = nsecs; }
				tracepoint:nvme:nvme_complete_rq / @start[args.ctrl_id, args.qid, args.cid] / {
					@[args.qid] = hist(nsecs - @start[args.ctrl_id, args.qid, args.cid]);
					delete(@start, (args.ctrl_id, args.qid, args.cid));
				}`,
			command: nvmeReads,
		},
		{
			name:  "disk request, `@[disk] = hist(latency)`",
			trace: "block:complete { @[disk] = hist(latency) }",
			// biolatency.bt with the disk as a key.
			bpftrace: `tracepoint:block:block_bio_queue { @start[args.sector] = nsecs; }
				tracepoint:block:block_rq_complete, tracepoint:block:block_bio_complete / @start[args.sector] / {
					@usecs[args.dev] = hist((nsecs - @start[args.sector]) / 1000);
					delete(@start, args.sector);
				}`,
			target:  0.7,
			command: nvmeReads,
		},
		{
			name:     "verb modify_qp, `@[ret] = count()`",
			trace:    "ib:modify_qp { @[ret] = count() }",
			bpftrace: "kretprobe:ib_modify_qp_with_udata { @[retval] = count(); }",
			command:  modifyQPs,
		},
		{
			name:  "verb modify_qp, `@[ret] = hist(latency)`",
			trace: "ib:modify_qp { @[ret] = hist(latency) }",
			bpftrace: `kprobe:ib_modify_qp_with_udata { @start[tid] = nsecs; }
				kretprobe:ib_modify_qp_with_udata / @start[tid] / { @[retval] = hist(nsecs - @start[tid]); delete(@start, tid); }`,
			command: modifyQPs,
		},
	}
}

// measureDevices measures round by round, too.
func (b *bench) measureDevices(ctx context.Context, peers []peer) error {
	for round := range b.loads {
		for _, w := range deviceWorkloads() {
			if err := b.inTurn(ctx, w, round, peers, b.operations); err != nil {
				return err
			}
		}
	}
	return nil
}

// operations measures what the programs of one load take for each operation of the workload's command, and the start.
func (b *bench) operations(ctx context.Context, w workload, p peer, f *figures) (string, error) {
	others, err := loadedPrograms()
	if err != nil {
		return "", err
	}
	program, err := p.attach(ctx, p.program(w), io.Discard)
	if err != nil {
		return "", err
	}
	time.Sleep(settle)
	ns, runErr := perOperation(ctx, w.command, others)
	o, err := program.detach()
	if err := errors.Join(runErr, err); err != nil {
		return "", err
	}
	f.accounted = append(f.accounted, ns)
	f.start = append(f.start, o.start.Seconds())
	f.peak = append(f.peak, megabytes(o.peak))
	return fmt.Sprintf("%.0f ns, start %.2f s, %.1f MB", ns, o.start.Seconds(), megabytes(o.peak)), nil
}

// perOperation runs the command a few times. It returns what all programs except others take for each operation; the least of the commands
// counts. Each operation must run each program once.
func perOperation(ctx context.Context, command string, others map[ebpf.ProgramID]bool) (float64, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, fmt.Errorf("let the kernel account BPF programs: %w", err)
	}
	defer stats.Close()
	least := math.Inf(1)
	for range 3 {
		before, err := runs(others)
		if err != nil {
			return 0, err
		}
		if err := makeEvents(ctx, command); err != nil {
			return 0, err
		}
		after, err := runs(others)
		if err != nil {
			return 0, err
		}
		ns, ran := eachOperation(before, after)
		if !ran {
			return 0, fmt.Errorf("no program ran during: %s", command)
		}
		least = min(least, ns)
	}
	return least, nil
}

// makeEvents runs a command, and kills it if it hangs.
func makeEvents(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", command)
	cmd.WaitDelay = time.Second // for what it leaves in the background
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: …%s", command, err, out[max(0, len(out)-200):])
	}
	return nil
}

// eachOperation returns the ns of all programs for each run of the program that ran most often; ok is false if none ran.
func eachOperation(before, after map[ebpf.ProgramID]ebpf.ProgramStats) (float64, bool) {
	var took time.Duration
	var operations uint64
	for id, a := range after {
		took += a.Runtime - before[id].Runtime
		operations = max(operations, a.RunCount-before[id].RunCount)
	}
	return float64(took) / float64(operations), operations > 0
}

const deviceHeading = `
# Devices

The same tools in a virtual machine with an NVMe disk and an RDMA device, whose CPU is emulated: only the ratios tell something. Each
figure is the median of %d fresh loads, both tools in turn, with the least and the greatest in parentheses.

%s
`

const deviceExplanation = `
ns are what the kernel accounts to all programs of a tool (kernel.bpf_stats_enabled), for each NVMe command of a dd or each modify_qp
of an ib_send_bw, in the fastest of three runs of the command in each load. bpftrace attaches to tracepoints of nvme_core and of the block
layer, and to kprobes on ib_modify_qp_with_udata; where the latency is wanted it keeps the beginnings in a map of its own.
`

// reportDevices writes the results as Markdown.
func (b *bench) reportDevices(w io.Writer, machine string) {
	fmt.Fprintf(w, deviceHeading, b.loads, machine)
	var rows []row
	for _, load := range deviceWorkloads() {
		ours, theirs := b.of(load, "trace"), b.of(load, "bpftrace")
		rows = append(rows,
			row{figure: load.name, unit: "ns", scale: 1, ours: ours.accounted, peer: "bpftrace", theirs: theirs.accounted, target: load.target},
			row{figure: "its start to attached", unit: "s", digits: 2, scale: 1, ours: ours.start, peer: "bpftrace", theirs: theirs.start, target: 0.12},
			row{figure: "its peak resident memory", unit: "MB", digits: 1, scale: 1, ours: ours.peak, peer: "bpftrace", theirs: theirs.peak, target: 0.25})
	}
	table(w, rows)
	fmt.Fprint(w, deviceExplanation)
	for _, remark := range b.remarks {
		fmt.Fprintf(w, "- %s\n", remark)
	}
}

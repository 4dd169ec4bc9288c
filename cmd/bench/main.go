// Bench compares trace with bpftrace and with hand-written C on this machine: what a traced system call costs, how long a start
// takes, how much memory, and how many lines of a flood arrive. It needs root. .ci/bench prepares the peers and runs it:
//
//	make bench             # measures and writes cmd/bench/RESULTS.md
//	.ci/bench -loads 1     # a quick try that writes nothing
//
// The table goes to standard output as Markdown. Whether a figure meets its target has no influence on the exit status.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options is the command line.
type options struct {
	trace    string
	bpftrace string
	c, clang string
	devices  bool
	verbs    string
	nvme     string
	loads    int
	window   time.Duration
	only     *regexp.Regexp
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.trace, "trace", "trace", "`binary` of trace")
	fs.StringVar(&o.bpftrace, "bpftrace", "", "`root` folder of a system with bpftrace and with /sys, /proc and /dev; none if empty")
	fs.StringVar(&o.c, "c", "", "`object` compiled from peer.bpf.c; none if empty")
	fs.StringVar(&o.clang, "clang", "", "`version` of the compiler of the object")
	fs.BoolVar(&o.devices, "devices", false, "measure the probes of NVMe and RDMA instead, with /dev/nvme0n1 and rxe0 of a virtual machine")
	fs.StringVar(&o.verbs, "verbs", "", "`folder` with provider and wrapper.so, for the verbs data path; not measured if empty")
	fs.StringVar(&o.nvme, "nvme", "", "`binary` of the tests of package probes, for NVMe commands without a disk; not measured if empty")
	fs.IntVar(&o.loads, "loads", 9, "fresh loads of each program")
	fs.DurationVar(&o.window, "window", 3*time.Second, "how long the lines of a flood are counted")
	only := fs.String("only", "", "measures only the workloads whose names match this `regexp`, like 'hist|flood'")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.loads < 1 || o.window <= 0 || fs.NArg() > 0 {
		return o, fmt.Errorf("-loads and -window have to be positive, and there are no arguments; see bench -h")
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	o.trace, err = filepath.Abs(o.trace)
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	size, err := staticSize(o.trace)
	if err != nil {
		return err
	}
	tools, peers, err := o.peers()
	if err != nil {
		return err
	}
	var machine strings.Builder
	if err := describe(ctx, &machine, tools, o.clang); err != nil {
		return err
	}
	b := &bench{loads: o.loads, window: o.window, only: o.only, progress: stderr, found: make(map[key]*figures)}
	if o.devices {
		if err := b.measureDevices(ctx, peers); err != nil {
			return err
		}
		if err := b.measureVerbs(ctx, o.verbs, o.bpftrace, peers); err != nil {
			return err
		}
		b.reportDevices(stdout, machine.String())
		b.reportVerbs(stdout, inVM)
		return nil
	}
	if b.loop, err = newLoop(); err != nil {
		return err
	}
	defer b.loop.close()
	folder, err := os.MkdirTemp("", "trace-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := b.measure(ctx, o, tools[0], peers, filepath.Join(folder, "flood.rec")); err != nil {
		return err
	}
	if o.verbs != "" {
		if err := b.measureVerbs(ctx, o.verbs, o.bpftrace, peers); err != nil {
			return err
		}
	}
	b.report(stdout, machine.String(), size, names(peers))
	if o.verbs != "" {
		b.reportVerbs(stdout, "On this machine.")
	}
	return nil
}

// peers returns the tools, and all that are compared.
func (o options) peers() ([]tool, []peer, error) {
	t, p := tracePeer(o.trace)
	tools, peers := []tool{t}, []peer{p}
	if o.bpftrace != "" {
		t, p := bpftracePeer(o.bpftrace)
		tools, peers = append(tools, t), append(peers, p)
	}
	if o.c == "" {
		return tools, peers, nil
	}
	c, err := cPeer(o.c)
	return tools, append(peers, c), err
}

// measure measures round by round, so that a change of the machine's pace affects all peers. The recording of the flood goes to a file.
func (b *bench) measure(ctx context.Context, o options, trace tool, peers []peer, file string) error {
	recorder := []peer{recordingPeer(trace.path, file)}
	for round := range b.loads {
		for _, w := range costly() {
			if err := b.inTurn(ctx, w, round, peers, b.cost); err != nil {
				return err
			}
		}
		if err := b.inTurn(ctx, waits(), round, peers, b.operations); err != nil {
			return err
		}
		if o.nvme != "" {
			if err := b.inTurn(ctx, commands(), round, peers, b.commands(o.nvme, o.c)); err != nil {
				return err
			}
		}
		if err := b.inTurn(ctx, flood(), round, peers, b.flood); err != nil {
			return err
		}
		if err := b.inTurn(ctx, recorded(), round, recorder, b.record(file, trace)); err != nil {
			return err
		}
	}
	return nil
}

const heading = `# Performance

` + "`make bench`" + ` has written this; all figures are from one run. Each is the median of %d fresh loads, all peers in turn, with the
least and the greatest in parentheses.

%s
`

const explanation = `
ns are what a program adds to a getppid in a loop on one CPU, which takes %s without it; of each load the
fastest of %d batches of %d calls counts. The flood is the same loop at full speed, with tid, comm and nr of each call printed to
a pipe; the lines that arrive are counted. A recording of it keeps all fields of each call in a file; the events in it are counted.
The wait for a CPU is what the kernel accounts to all programs of a tool for each switch between two processes that wake each other;
bpftrace runs its runqlat.bt. An NVMe command has no disk here: the programs of its submission and of its completion are run by
BPF_PROG_TEST_RUN over requests in the memory of a map; its ns are what the kernel accounts to both, and what they add to two empty
programs, in the fastest of %d batches. Start and memory belong to the first program. bpftrace attaches to
tracepoint:raw_syscalls:sys_enter, and for a latency to sys_exit, too; C to tp_btf/sys_enter.

`

// report writes the results as Markdown.
func (b *bench) report(w io.Writer, machine string, binary int64, peers []string) {
	fmt.Fprintf(w, heading, b.loads, machine)
	table(w, b.rows(binary))
	fmt.Fprintf(w, explanation, spread(b.untraced, 1, 1, "ns"), batches, batchCalls, commandBatches)
	b.details(w, peers)
	fmt.Fprintln(w)
	b.lost(w, peers)
	if b.repeated > 0 {
		fmt.Fprintf(w, "- Loads repeated because the bare call changed its pace meanwhile: %d.\n", b.repeated)
	}
	for _, remark := range b.remarks {
		fmt.Fprintf(w, "- %s\n", remark)
	}
}

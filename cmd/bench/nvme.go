package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// This file measures the programs for NVMe commands on the real CPU, without a disk: BenchmarkNvmeLatency of package probes runs them by
// BPF_PROG_TEST_RUN over requests in the memory of a map.

// commands is what that benchmark measures; its parts are named like the peers. bpftrace's programs cannot be run by themselves.
func commands() workload {
	return workload{
		name:   "NVMe command, `@[qid] = hist(latency)`",
		trace:  "nvme:complete_rq { @[qid] = hist(latency) }",
		c:      "nvme_submit",
		target: 0.8,
	}
}

// commandBatches is how many batches of commands a load has. The fastest counts.
const commandBatches = 1000

var commandFigures = regexp.MustCompile(`([\d.]+) accounted-ns/command\s+(-?[\d.]+) added-ns/command`)

// commands measures by a test binary of package probes; object is compiled from peer.bpf.c.
func (b *bench) commands(binary, object string) measure {
	return func(ctx context.Context, _ workload, p peer, f *figures) (string, error) {
		out, err := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench=^BenchmarkNvmeLatency$/^"+p.name+"$",
			fmt.Sprintf("-test.benchtime=%dx", commandBatches), "-nvme.c="+object).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return f.readCommands(string(out))
	}
}

// readCommands adds the figures that the benchmark printed.
func (f *figures) readCommands(printed string) (string, error) {
	found := commandFigures.FindStringSubmatch(printed)
	if found == nil {
		return "", fmt.Errorf("no figures in %q", printed)
	}
	for i, values := range []*[]float64{&f.accounted, &f.added} {
		ns, err := strconv.ParseFloat(found[i+1], 64)
		if err != nil {
			return "", err
		}
		*values = append(*values, ns)
	}
	return found[1] + " ns", nil
}

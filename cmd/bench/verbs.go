package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// This file measures the probes of the verbs data path, in a program that calls the functions of a made-up provider (provider.c): the traps are
// a part of what a program adds, as the program waits for them.

// The provider's batches. One takes a few milliseconds with an emulated CPU, and some are not disturbed.
const (
	pairBatches = 60
	batchPairs  = 200
)

// verbsWorkloads returns the workloads of the data path. bpftrace probes the functions of the provider, whose names it must know; PROVIDER is their
// library. wr_id is the first member of struct ibv_send_wr and of struct ibv_wc.
func verbsWorkloads() []workload {
	return []workload{
		{
			name:      "post, `@ = count()`",
			trace:     "verbs:post_send { @ = count() }",
			bpftrace:  "uprobe:PROVIDER:provider_post_send { @ = count(); }",
			preloaded: "post",
			target:    1.02,
			countedAs: `(?m)^@: (\d+)$`,
		},
		{
			name:      "poll, `@ = count()`",
			trace:     "verbs:poll / !empty / { @ = count() }",
			bpftrace:  "uretprobe:PROVIDER:provider_poll_cq / retval > 0 / { @ = count(); }",
			preloaded: "poll",
			target:    1.02,
			countedAs: `(?m)^@: (\d+)$`,
		},
		{
			name:  "post → CQE, `@ = hist(latency)`",
			trace: "verbs:complete { @ = hist(latency) }",
			bpftrace: `uprobe:PROVIDER:provider_post_send { @posted[pid, *(uint64*)arg1] = nsecs; }
				uprobe:PROVIDER:provider_poll_cq { @wc[tid] = arg2; }
				uretprobe:PROVIDER:provider_poll_cq / retval > 0 / {
					$id = *(uint64*)@wc[tid];
					@ = hist(nsecs - @posted[pid, $id]);
					delete(@posted, (pid, $id));
				}`,
			preloaded: "latency",
			target:    0.95,
		},
	}
}

// A provider is a running provider.c.
type provider struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	said  bytes.Buffer
	pairs int64 // so far
}

func startProvider(ctx context.Context, path string, env ...string) (*provider, error) {
	p := &provider{cmd: exec.CommandContext(ctx, path)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.said
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the provider: %w", err)
	}
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the provider does not begin: %q, %v", line, err), p.end())
	}
	return p, nil
}

// cost returns the ns of a post and its poll in the fastest of many batches.
func (p *provider) cost() (float64, error) {
	fmt.Fprintln(p.in, pairBatches, batchPairs)
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the provider has ended: %w", p.end())
	}
	p.pairs += pairBatches * batchPairs
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

func (p *provider) end() error {
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, p.said.String())
	}
	return nil
}

// detach ends a provider that is a peer's.
func (p *provider) detach() (outcome, error) {
	err := p.end()
	return outcome{said: p.said.String()}, err
}

// preloadPeer is a wrapper by LD_PRELOAD. A program has to be started with it.
func preloadPeer(path, wrapper string) peer {
	return peer{
		name:    "LD_PRELOAD",
		program: func(w workload) string { return w.preloaded },
		attach: func(ctx context.Context, question string, _ io.Writer) (attached, error) {
			return startProvider(ctx, path, "LD_PRELOAD="+wrapper, "QUESTION="+question)
		},
	}
}

// measureVerbs measures the data path, with the program provider and the library wrapper.so of a folder below bpftrace's root folder.
func (b *bench) measureVerbs(ctx context.Context, folder, root string, peers []peer) error {
	path, library := filepath.Join(folder, "provider"), filepath.Join(folder, "libprovider-rdmav34.so")
	plain, err := startProvider(ctx, path)
	if err != nil {
		return err
	}
	peers = append(peers, preloadPeer(path, filepath.Join(folder, "wrapper.so")))
	for round := range b.loads {
		for _, w := range verbsWorkloads() {
			w.bpftrace = strings.ReplaceAll(w.bpftrace, "PROVIDER", strings.TrimPrefix(library, root))
			if err := b.inTurn(ctx, w, round, peers, b.pairs(plain)); err != nil {
				return errors.Join(err, plain.end())
			}
		}
	}
	return plain.end()
}

// pairs measures what a workload adds to a post and its poll.
func (b *bench) pairs(plain *provider) measure {
	return func(ctx context.Context, w workload, p peer, f *figures) (string, error) {
		before, err := plain.cost()
		if err != nil {
			return "", err
		}
		var output bytes.Buffer
		program, err := p.attach(ctx, p.program(w), &output)
		if err != nil {
			return "", err
		}
		traced, ours := program.(*provider)
		if !ours {
			traced = plain
		}
		time.Sleep(settle)
		made := traced.pairs
		took, costErr := traced.cost()
		made = traced.pairs - made
		o, err := program.detach()
		if err := errors.Join(costErr, err); err != nil {
			return "", err
		}
		time.Sleep(settle)
		after, err := plain.cost()
		if err != nil {
			return "", err
		}
		l := load{outcome: o, before: before, traced: took, after: after, made: made, output: output.String()}
		b.pair = append(b.pair, l.untraced())
		f.added = append(f.added, l.added())
		if !ours {
			b.checkCount(w, p, l)
		}
		return fmt.Sprintf("%.0f ns", l.added()), nil
	}
}

const verbsHeading = `
# The verbs data path

A program posts and polls in a loop, with the functions of a provider that is made up: %s for a post and its poll. Each figure
is what a tool adds to that, traps included. %s

`

// inVM is where the data path is measured with -devices.
const inVM = "In the same virtual machine the traps are emulated, too: only the ratios mean something."

const verbsExplanation = `
A count of posts takes one trap for each post, of polls two for each poll, and the latency three for both. bpftrace probes the functions by
their names in this program; a real provider's have none. LD_PRELOAD is a wrapper written for this comparison (wrapper.c): it needs
no trap, but the program has to be started with it.
`

// reportVerbs writes the results as Markdown.
func (b *bench) reportVerbs(w io.Writer, where string) {
	fmt.Fprintf(w, verbsHeading, spread(b.pair, 1, 0, "ns"), where)
	var rows []row
	for _, load := range verbsWorkloads() {
		ours := b.of(load, "trace").added
		rows = append(rows,
			row{figure: load.name, unit: "ns", scale: 1, ours: ours, peer: "bpftrace", theirs: b.of(load, "bpftrace").added, target: load.target},
			row{figure: load.name, unit: "ns", scale: 1, ours: ours, peer: "LD_PRELOAD", theirs: b.of(load, "LD_PRELOAD").added})
	}
	table(w, rows)
	fmt.Fprint(w, verbsExplanation)
}

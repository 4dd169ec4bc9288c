package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A peer is a tracer to compare.
type peer struct {
	name string
	// program returns the peer's form of a workload, or "" if it has none.
	program func(workload) string
	// attach returns once a program is attached. What it prints goes to output.
	attach func(ctx context.Context, program string, output io.Writer) (attached, error)
}

// attached is a running program.
type attached interface {
	// detach ends it and returns what is known of its run.
	detach() (outcome, error)
}

// outcome describes a tool's run; hand-written C has none.
type outcome struct {
	start time.Duration // until it was attached
	peak  int64         // bytes of memory that were resident at most
	said  string        // on standard error
}

// cPeer is hand-written C, compiled to an object file.
func cPeer(object string) (peer, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return peer{}, fmt.Errorf("read the object compiled from peer.bpf.c: %w", err)
	}
	return peer{
		name:    "C",
		program: func(w workload) string { return w.c },
		attach: func(_ context.Context, program string, _ io.Writer) (attached, error) {
			return attachC(spec, program)
		},
	}, nil
}

// cProgram is an attached program of peer.bpf.c.
type cProgram struct {
	programs *ebpf.Collection
	link     link.Link
}

func attachC(spec *ebpf.CollectionSpec, program string) (attached, error) {
	only := spec.Copy()
	only.Programs = map[string]*ebpf.ProgramSpec{program: only.Programs[program]}
	programs, err := ebpf.NewCollection(only)
	if err != nil {
		return nil, fmt.Errorf("load %s of peer.bpf.c: %w", program, err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: programs.Programs[program]})
	if err != nil {
		programs.Close()
		return nil, fmt.Errorf("attach %s of peer.bpf.c: %w", program, err)
	}
	return cProgram{programs, l}, nil
}

func (p cProgram) detach() (outcome, error) {
	defer p.programs.Close()
	return outcome{}, p.link.Close()
}

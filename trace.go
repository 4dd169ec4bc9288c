// Package trace runs programs of the language of trace on the events of this machine, or of recordings.
//
// A [Host] is where events come from. [Open] prepares this machine, [OpenRecording] files; everything works on both, so a program that uses
// this package can be tested without privileges and devices.
//
//	host, err := trace.Open()
//	for f, err := range trace.Events[flow](ctx, host, "ib:modify_qp / qp.state == RTR /") { … }
//
// [Events] yields the events that a program selects as values of a struct. [Host.Compile] and [Program.Start] run any program: maps are read
// with [Run.Rows] at any time, and with [Run.Records] what it prints. What is missing is in [Run.Losses].
//
// docs/library.md describes how to import the package, what is promised and what may change.
package trace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"trace/lang/ir"
	"trace/lang/run"
	"trace/lang/run/console"
	"trace/lang/syntax"
	"trace/probes/kernel"
	"trace/probes/symbols"
)

// Why a probe cannot be used, or a program not be started, for [errors.Is].
var (
	// ErrPermission: the process lacks capabilities, which the error names.
	ErrPermission = fs.ErrPermission
	// ErrUnsupported: the machine, its kernel, or the recording does not have the probe.
	ErrUnsupported = errors.ErrUnsupported
	// ErrModule: the kernel module with the probe is not loaded. The error is an ErrUnsupported, too.
	ErrModule = kernel.ErrNotLoaded
)

// Error is a mistake in a program, with its line, its column, and advice. [errors.As] finds the first one of a program.
type Error = syntax.Error

// Host is where events come from: this machine, or recordings. Its methods may be called from several goroutines.
type Host struct {
	options options
	files   []string // of recordings; nil: this machine
	local   local
	names   *symbols.Names // of functions, for all programs
}

type options struct {
	btf    []string
	logger *slog.Logger
	unsafe bool
}

// Option configures a [Host].
type Option func(*options)

// WithBTF reads the types of kernel modules without BTF from files, or folders of files, as --btf does.
func WithBTF(files ...string) Option { return func(o *options) { o.btf = append(o.btf, files...) } }

// WithLogger logs what trace prints to its user: what is attached and what is left out, warnings, and losses.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithUnsafe allows programs to act: system() runs commands, and signal() sends signals.
func WithUnsafe() Option { return func(o *options) { o.unsafe = true } }

// Open prepares to trace this machine. It needs no privileges. The caller closes the host.
func Open(o ...Option) (*Host, error) {
	h := &Host{names: symbols.NewNames(namesShare)}
	for _, set := range o {
		set(&h.options)
	}
	for _, name := range h.options.btf {
		if _, err := os.Stat(name); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// namesShare is which part of the time of a CPU may be spent on names of functions. What they need at first is more: it has ten seconds.
const namesShare = 0.1

// Names is what names of functions take, for all programs of a host that uses this machine: docs/metrics.md explains it. Unlike the rest of this
// package it may change.
type Names = symbols.Usage

// Names returns what names of functions take now.
func (h *Host) Names() Names {
	if h.names == nil {
		return Names{}
	}
	return h.names.Usage()
}

// OpenRecording reads files as they were recorded, several merged by time. The name of a ring stands for its files. An error is a mistake in
// a file, or an error of opening it.
func OpenRecording(files ...string) (*Host, error) {
	rec, err := run.OpenRecordings(files...)
	if err != nil {
		return nil, err
	}
	return &Host{files: slices.Clone(files)}, rec.Close()
}

// Close releases what [Host.Available] has read. Runs of the host go on.
func (h *Host) Close() error {
	h.local.close()
	return nil
}

// Status is how a probe can be used on a host.
type Status struct {
	// Probe is its name, like nvme:complete_rq.
	Probe string
	// Variant is how it would be attached, like fexit, or recorded; "" if it cannot be.
	Variant string
	// Err is why it cannot be attached: an [ErrPermission], an [ErrModule] or an [ErrUnsupported]. It is nil if it can be.
	Err error
	// Notes describe what the probe lacks here, although it can be attached.
	Notes []string
}

// Available returns how the probes that match a glob, like nvme:* or *:*_qp, can be used, sorted by name. A host that reads recordings has
// only the recorded probes. It needs no privileges, and loads nothing into the kernel.
func (h *Host) Available(pattern string) ([]Status, error) {
	if h.files == nil {
		return h.available(pattern)
	}
	rec, err := run.OpenRecordings(h.files...)
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	found, err := run.Listed(rec.Probes(), pattern)
	all := make([]Status, len(found))
	for i, p := range found {
		all[i] = Status{Probe: p.String(), Variant: "recorded"}
	}
	return all, err
}

// runner is a program that was checked for a host.
type runner struct {
	compiled
	// release ends the use of what it reads.
	release func() error
}

type compiled interface {
	Program() *ir.Program
	Check() error
	Run(ctx context.Context, out run.Outputs) (*run.Ended, error)
}

// prepare checks a program for the host.
func (h *Host) prepare(o run.Options) (runner, error) {
	o.Environ, o.Unsafe, o.BTF, o.Names = os.Environ(), h.options.unsafe, h.options.btf, h.names
	if h.files == nil {
		return live(o)
	}
	rec, err := run.OpenRecordings(h.files...)
	if err != nil {
		return runner{}, err
	}
	replay, err := run.NewReplay(o, rec)
	if err != nil {
		return runner{}, errors.Join(err, rec.Close())
	}
	return runner{replay, rec.Close}, nil
}

// Record writes the events that a program selects to w until ctx ends, with all their fields. It fails for programs with bodies, and on a host
// that reads recordings. What was lost is in the recording. If ctx ends
// before the probes are attached, w gets nothing, and the error is the cause.
func (h *Host) Record(ctx context.Context, w io.Writer, program string) error {
	if h.files != nil {
		return errors.New("record: the events come from a recording: copy it")
	}
	return h.record(ctx, w, program)
}

// notes returns what takes the notes of a run: it logs them.
func (h *Host) notes() *console.Console {
	if h.options.logger == nil {
		return &console.Console{Err: io.Discard, Quiet: true}
	}
	return &console.Console{Err: lines{h.options.logger}}
}

// lines logs each line that is written.
type lines struct{ logger *slog.Logger }

func (l lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l.logger.Info(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "trace: "))
	}
	return len(p), nil
}

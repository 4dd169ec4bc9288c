package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"trace/lang/run"
	"trace/probes"
)

// local is what [Host.Available] has read of this machine.
type local struct {
	mu      sync.Mutex
	catalog *probes.Catalog
	host    *probes.Host
}

func (l *local) open(btf []string) (err error) {
	if l.host != nil {
		return nil
	}
	if l.catalog, err = probes.Load(); err != nil {
		return err
	}
	l.host, err = probes.Detect(l.catalog, probes.HostOptions{BTF: btf})
	return err
}

func (l *local) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host != nil {
		l.host.Release()
	}
}

func (h *Host) available(pattern string) ([]Status, error) {
	h.local.mu.Lock()
	defer h.local.mu.Unlock()
	if err := h.local.open(h.options.btf); err != nil {
		return nil, err
	}
	found, err := run.Listed(h.local.catalog.Probes(), pattern)
	all := make([]Status, len(found))
	for i, p := range found {
		s := h.local.host.Status(p)
		all[i] = Status{Probe: p.String(), Variant: s.Variant, Notes: s.Notes, Err: s.Err()}
	}
	return all, err
}

// live checks a program for this machine.
func live(o run.Options) (runner, error) {
	l, err := run.NewLive(o)
	if err != nil {
		return runner{}, err
	}
	return runner{l, func() error { return nil }}, nil
}

// record records through a pipe: a recording is written to a file.
func (h *Host) record(ctx context.Context, w io.Writer, program string) error {
	from, to, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer from.Close()
	o := run.Options{Name: "program", Text: program}
	o.Record = &run.Record{File: fmt.Sprintf("/proc/self/fd/%d", to.Fd()), Program: program, Only: true}
	o.Columns.All = true
	r, err := h.prepare(o)
	if err == nil {
		err = r.Program().Selects()
	}
	if err != nil {
		return errors.Join(err, to.Close())
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(w, from)
		if err != nil {
			end()
			_, _ = io.Copy(io.Discard, from) // the run ends without waiting for a reader
		}
		copied <- err
	}()
	console := h.notes()
	ended, err := r.Run(ctx, run.Outputs{Note: unlessLeft(console.Show)})
	if ended != nil {
		console.Report(ended.Report)
		err = errors.Join(err, ended.Close())
	}
	if err == nil && (ended == nil || ended.Report.File == "") {
		err = fmt.Errorf("record: it ended before the probes were attached: %w", context.Cause(ctx))
	}
	err = errors.Join(err, to.Close())
	return errors.Join(err, <-copied)
}

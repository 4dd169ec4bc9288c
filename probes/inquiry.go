//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// An inquirer is a loaded inquiry of a request.
type inquirer struct {
	*request
	mark *ebpf.Program
}

// newInquirer loads the program that marks calls.
func newInquirer(l *loader, r *request) (*inquirer, error) {
	mark, err := l.unattached(r.origin.hook.inquiry.mark)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Probe, err)
	}
	return &inquirer{r, mark}, nil
}

func (q *inquirer) set(marked uint64) error {
	if _, err := q.mark.Run(&ebpf.RunOptions{Context: [2]uint64{marked}}); err != nil {
		return fmt.Errorf("%s: run %s: %w", q.Probe, q.origin.hook.inquiry.mark, err)
	}
	return nil
}

// Close releases the program.
func (q *inquirer) Close() error { return q.mark.Close() }

// inquire reports the objects from before some requests were attached, once for all requests for a probe. If they cannot be reported, that is
// a note and no failure of the session.
func inquire(ctx context.Context, all []*inquirer, n *notes) (err error) {
	for _, q := range all {
		if err := q.set(1); err != nil {
			return err
		}
	}
	for i, q := range all {
		if slices.ContainsFunc(all[:i], func(o *inquirer) bool { return o.Probe == q.Probe }) {
			continue
		}
		notes, err := q.origin.hook.inquiry.ask(ctx)
		if err != nil && ctx.Err() == nil {
			notes = append(notes, fmt.Sprintf("not all objects from before are reported: %v", err))
		}
		for _, note := range notes {
			n.add(q.Probe, note)
		}
	}
	for _, q := range all {
		err = errors.Join(err, q.set(0))
	}
	return errors.Join(err, ctx.Err())
}

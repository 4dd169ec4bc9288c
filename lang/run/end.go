package run

import (
	"context"
	"errors"
	"syscall"

	"trace/lang/exec"
	"trace/lang/output"
)

// errEnough ends reading after -n events were printed or the program called exit().
var errEnough = errors.New("enough events")

// unlessEnough returns err, or nil if it only means that no more events are wanted.
func unlessEnough(err error) error {
	if errors.Is(err, errEnough) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// showMaps prints the maps whenever the user requests them, until ctx ends. If the data is made at the end, they go to the user's
// output.
func showMaps(ctx context.Context, exec *exec.Run, p *output.Printer, out Outputs) {
	if out.Document != nil {
		p = p.OfMaps(out.User)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-out.Show:
		}
		if err := exec.Show(p); err != nil {
			out.Note(Trouble{err})
		}
		out.Data.Flush()
	}
}

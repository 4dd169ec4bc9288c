package run

import (
	"context"
	"errors"
	"syscall"

	"trace/lang/exec"
	"trace/lang/output"
)

// errEnough ends the reading when as many events as wanted were printed or the program called exit().
var errEnough = errors.New("enough events")

// unlessEnough is err, or nil if it says that there is nobody who wants more events.
func unlessEnough(err error) error {
	if errors.Is(err, errEnough) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// showMaps prints the maps whenever the user asks for them, until ctx ends. Where the data is made at the end, they are for the user.
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

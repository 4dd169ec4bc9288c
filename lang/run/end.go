package run

import (
	"context"
	"errors"
	"syscall"

	"trace/lang/exec"
	"trace/lang/output"
)

// ErrEnough ends reading after -n events were printed or the program called exit(). [Outputs.Sink] may return it, too: the run then ends
// without an error.
var ErrEnough = errors.New("enough events")

// unlessEnough returns err, or nil if it only means that no more events are wanted.
func unlessEnough(err error) error {
	if errors.Is(err, ErrEnough) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// showMaps runs [showNow] whenever the user requests the maps, until ctx ends. It calls end after exit(). If the data is made at the
// end, printed maps go to the user's output.
func showMaps(ctx context.Context, end func(), exec *exec.Run, p *output.Printer, out Outputs) {
	if out.Document != nil {
		p = p.AsText(out.User)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-out.Show:
		}
		if err := showNow(exec, p); err != nil {
			out.Note(Trouble{err})
		}
		out.Data.Flush()
		if exec.Stopped() {
			end()
		}
	}
}

// showNow runs the clauses of the signal that requests the maps, or prints all maps if the program has none.
func showNow(exec *exec.Run, p *output.Printer) error {
	if any, err := exec.Signaled(); any || err != nil {
		return err
	}
	return exec.Show(p)
}

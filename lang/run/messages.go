package run

import (
	"trace/lang/exec"
	"trace/lang/output"
)

// messages are lines among the data that no clause prints, of formats that have them.
type messages struct {
	exec    *exec.Run
	printer *output.Printer
	// lost events are told of.
	lost uint64
}

// attached says how many probes are attached, if any are.
func (m *messages) attached(probes int) error {
	if probes == 0 {
		return nil
	}
	return m.exec.Between(func() error { return m.printer.Attached(probes) })
}

// losing says that so many events are lost by now, of which some are told of.
func (m *messages) losing(all uint64) error {
	return m.exec.Between(func() error {
		if all <= m.lost {
			return nil
		}
		more := all - m.lost
		m.lost = all
		return m.printer.Lost(more)
	})
}

func lostOf(all []Probe) (n uint64) {
	for _, p := range all {
		n += p.Lost
	}
	return n
}

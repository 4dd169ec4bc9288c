package run

import (
	"errors"

	"trace/lang/exec"
	"trace/lang/output"
)

// messages are lines among the data that no clause prints, in formats that have them.
type messages struct {
	exec     *exec.Run
	printers []*output.Printer
	// lost is how many lost events were reported.
	lost uint64
}

// attached writes how many probes are attached, if any are.
func (m *messages) attached(probes int) error {
	if probes == 0 {
		return nil
	}
	return m.exec.Between(func(at uint64) error {
		return m.each(func(p *output.Printer) error { return p.Attached(at, probes) })
	})
}

// each calls f for the printers. The two of a comparison print the same.
func (m *messages) each(f func(*output.Printer) error) error {
	var errs []error
	for _, p := range m.printers {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// losing writes how many events were lost since the last report. all is the total.
func (m *messages) losing(all uint64) error {
	return m.exec.Between(func(at uint64) error {
		if all <= m.lost {
			return nil
		}
		more := all - m.lost
		m.lost = all
		return m.each(func(p *output.Printer) error { return p.Lost(at, more) })
	})
}

func lostOf(all []Probe) (n uint64) {
	for _, p := range all {
		n += p.Lost
	}
	return n
}

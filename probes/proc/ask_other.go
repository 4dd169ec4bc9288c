//go:build !linux

package proc

import (
	"errors"
	"os"
)

// No other system has what is read in this way.
func threadID() int { return 0 }

func sleepOf(string, int) sleep { return sleep{asleep: true} }

// Payer returns the user: no other system has user namespaces.
func Payer(_ int, user uint32) uint32 { return user }

// No other system has helpers.
type helpers struct{}

func (helpers) dismiss() {}

// OpenMapped needs Linux.
func (*Questions) OpenMapped(uint32, int, Mapping) (*os.File, error) {
	return nil, errors.ErrUnsupported
}

// OpenBelow needs Linux.
func (*Questions) OpenBelow(uint32, int, string, string, bool) (*os.File, error) {
	return nil, errors.ErrUnsupported
}

// Holders are none without helpers.
func (q *Questions) Holders() []Holder {
	q.End()
	return nil
}

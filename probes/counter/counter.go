//go:build linux

// Package counter reads counters of devices, and sizes of processes.
package counter

import (
	"slices"

	"golang.org/x/sys/unix"
)

// A Source has the counters of devices of one kind, or of processes.
type Source interface {
	// Read calls each for every set of counters that there is now.
	Read(each func(Set)) error
	// Close releases it. No call of Read may be under way.
	Close() error
}

// A Key is what a set of counters belongs to, as long as that exists. A device that is removed and made again has another one, and so has a
// process with the number of another one that has ended.
type Key struct {
	Device uint64 // or process
	Began  uint64 // of a process
	Port   uint32 // 0: the counters are of the whole device
	Kind   uint32 // enum of the event's source
}

// A Set is counters that were read together.
type Set struct {
	Key
	Name     string // of the device or process
	At       uint64 // when they were read, ns since boot
	Counters []Counter
	// Err is why they could not be read, although they are there.
	Err error
}

// A Counter is the value of a counter.
type Counter struct {
	Name  string
	Value uint64
}

// A Change is a counter that is not what it was.
type Change struct {
	Counter
	Before uint64
}

// Since returns what has changed since the set was read before. A counter that was not there then has not changed.
func (s Set) Since(before Set) (changed []Change) {
	for i, c := range s.Counters {
		if i >= len(before.Counters) || before.Counters[i].Name != c.Name {
			i = slices.IndexFunc(before.Counters, func(o Counter) bool { return o.Name == c.Name })
		}
		if i >= 0 && before.Counters[i].Value != c.Value {
			changed = append(changed, Change{c, before.Counters[i].Value})
		}
	}
	return changed
}

// Without returns the set as it is when there are none of its counters.
func (s Set) Without() Set {
	zeros := make([]Counter, len(s.Counters))
	for i, c := range s.Counters {
		zeros[i].Name = c.Name
	}
	return Set{Key: s.Key, Name: s.Name, Counters: zeros}
}

// now is the time on the clock of nsecs.
func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it cannot fail
	return uint64(t.Nano())
}

package result

// A Moment is the time of an output. It is read only where it is wanted: the time of an event that does not have its own costs a system
// call.
type Moment interface {
	// Nsecs returns the time on the clock of nsecs. It must be called before the output is finished.
	Nsecs() uint64
}

// At is a moment that is known.
type At uint64

// Nsecs returns the time.
func (a At) Nsecs() uint64 { return uint64(a) }

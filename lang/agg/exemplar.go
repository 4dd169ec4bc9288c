package agg

import (
	"time"

	"trace/lang/result"
)

// Exemplified is an aggregation that can keep exemplars: which events its largest values came from.
type Exemplified interface {
	Func
	// AddFrom adds a value of an event, which has a time, on the clock of nsecs, and a thread.
	AddFrom(state []uint64, at uint64, thread uint32, x uint64, signed bool)
}

// The state of a histogram with exemplars has slots behind the counts of its buckets. A slot is two words: the time of an event, and
// its bucket and thread, mixed with the time. The highest bucket of a slot keeps it, with its last event, until that is old. So the
// slots have the last events of the highest buckets.
//
// Two BPF programs may write a slot at the same time, or one while it is read. Then the words belong to two events. They yield
// no bucket that has a value, as [Mix] spreads the difference of the times over all bits, and the slot counts as empty.
const (
	Slots    = 4 // a power of two
	SlotSize = 2 // in words
	// OldBits is how many bits the age of an exemplar has that keeps its slot: 69 s. A scraper has seen it by then, and whoever
	// looks for what happened lately needs later ones.
	OldBits = 36
	// BucketShift is where the bucket is above the thread in the second word.
	BucketShift = 32
)

// Mix multiplies the time of a slot: the 64-bit number of the golden ratio (Knuth, The Art of Computer Programming, 6.4).
const Mix int64 = -0x61c8864680b583eb

// WithExemplars returns the aggregation with exemplars, or as it is if it cannot keep any.
func WithExemplars(f Func) Func {
	switch f := f.(type) {
	case Hist:
		f.exemplars = true
		return f
	case LHist:
		f.exemplars = true
		return f
	case Quantile:
		f.exemplars = true
		return f
	}
	return f
}

// GroupBits returns how many bits of the index of a bucket do not choose its slot: all buckets of a power of two share one.
func (b Buckets) GroupBits() int {
	if l, is := b.Ranges.(Log); is {
		return l.Bits
	}
	return 0
}

// Slot returns the slot of a bucket.
func (b Buckets) Slot(bucket int) int {
	return (bucket + 1<<b.GroupBits() - 1) >> b.GroupBits() % Slots
}

// exemplar is what a slot holds.
type exemplar struct {
	at     uint64
	bucket int
	thread uint32
}

// slot returns the words of a slot.
func (h histogram) slot(state []uint64, i int) []uint64 {
	return state[h.Count()+i*SlotSize:][:SlotSize]
}

// exemplar returns what a slot holds. ok is false if that is nothing, or of two events.
func (h histogram) exemplar(state []uint64, slot int) (e exemplar, ok bool) {
	words := h.slot(state, slot)
	e = unmixed(words)
	return e, words[0]|words[1] != 0 && e.bucket < h.Count() && state[e.bucket] > 0
}

// offer puts an exemplar into its slot if it has precedence there. Among events of one bucket, the later one has.
func (h histogram) offer(state []uint64, e exemplar) {
	words := h.slot(state, h.buckets().Slot(e.bucket))
	there := unmixed(words)
	later := int64(e.at - there.at)
	if empty := words[0]|words[1] == 0; empty || e.bucket > there.bucket || e.bucket == there.bucket && later >= 0 || later>>OldBits > 0 {
		words[0], words[1] = e.at, (uint64(e.bucket)<<BucketShift|uint64(e.thread))^mixed(e.at)
	}
}

func unmixed(words []uint64) exemplar {
	both := words[1] ^ mixed(words[0])
	return exemplar{words[0], int(both >> BucketShift), uint32(both)}
}

func mixed(at uint64) uint64 { return uint64(int64(at) * Mix) }

// AddFrom adds a value of an event, which becomes an exemplar.
func (h histogram) AddFrom(state []uint64, at uint64, thread uint32, x uint64, signed bool) {
	bucket := h.Index(x, signed)
	state[bucket]++
	h.offer(state, exemplar{at, bucket, thread})
}

// shownExemplars returns the exemplars of a state, by their slots.
func (h histogram) shownExemplars(state []uint64, clock func(nsecs uint64) time.Time) (all []result.Exemplar) {
	if !h.exemplars || clock == nil {
		return nil
	}
	for slot := range Slots {
		if e, ok := h.exemplar(state, slot); ok {
			all = append(all, result.Exemplar{Bucket: e.bucket, TID: e.thread, Time: clock(e.at)})
		}
	}
	return all
}

package codegen

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
)

// Sets are where a map that ranks (agg.Ranked) keeps what finds no place in its hash: a table of sets that each CPU has for itself. The bits
// of a hash of the key choose the set, which has room for a few ways, a key with its state each. If there is no free way, the key takes
// that of the least state, and begins with what this had, as that much may be its own (space saving). So what a key had on a CPU is known
// within the error of its way; if it has none, it had at most what the least way of a full set has.
//
// A set has no free way before one that is used, and only keys for which there was no room use ways: a set that is used says that the hash
// is full, which is not tried again then. Keys that are in the hash are counted there, exactly.
type Sets struct {
	// Key is the size of a key.
	Key int
	// Keys of the hash.
	Keys uint32
}

// waysOfSet is how many keys a set has room for.
const waysOfSet = 8

// There are sets for a quarter of the keys of the hash, within bounds.
const (
	keysPerSet          = 4 * waysOfSet
	leastSets, mostSets = 2, 1024
)

// Offsets in a set and in a way. The first word of a set is 1 while a program changes the set.
const (
	firstWay = 8
	wayState = 0
	wayError = 8
	wayKey   = 16
)

func (s Sets) way(i int) int { return firstWay + i*(wayKey+s.Key) }
func (s Sets) size() int     { return s.way(waysOfSet) }

// Count is how many sets a CPU has, a power of two.
func (s Sets) Count() int {
	return min(max(1<<bits.Len32((s.Keys-1)/keysPerSet), leastSets), mostSets)
}

// Bytes is what they take for each CPU.
func (s Sets) Bytes() int { return s.Count() * s.size() }

func (s Sets) spec(name string) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(s.size()), MaxEntries: uint32(s.Count())}
}

// Way is a key in a set.
type Way struct {
	Row   []byte
	State []uint64
}

// Ways are those of a set of one CPU that are used. A full set may have lost others, which had at most what the least one has.
func (s Sets) Ways(set []byte) (all []Way, full bool) {
	for i := range waysOfSet {
		way := set[s.way(i):]
		state := []uint64{binary.NativeEndian.Uint64(way[wayState:]), binary.NativeEndian.Uint64(way[wayError:])}
		if state[0] == 0 {
			return all, false
		}
		all = append(all, Way{slices.Clone(way[wayKey : wayKey+s.Key]), state})
	}
	return all, true
}

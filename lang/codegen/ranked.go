package codegen

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf"
)

// Sets hold the keys of a map that ranks (agg.Ranked) that find no room in its hash. They are a table of sets for each CPU. The
// bits of a hash of the key choose the set. A set has room for a few ways, each a key with its state. If no way is free, the key
// replaces the one with the least state and starts from that state, because that much may be its own (space saving). So the sum of
// a key on a CPU is known within the error of its way. A key without a way had at most the sum of the least way of a full set.
//
// The ways of a set are used in order, and only keys without room in the hash use them. So a used set means that the hash is full,
// and no insertion is tried. Keys that are in the hash are counted there, exactly.
type Sets struct {
	// Key is the size of a key in bytes.
	Key int
	// Keys is how many keys the hash has room for.
	Keys uint32
}

// waysOfSet is how many keys a set has room for.
const waysOfSet = 8

// There are sets for a quarter of the keys of the hash, within bounds.
const (
	keysPerSet          = 4 * waysOfSet
	leastSets, mostSets = 2, 1024
)

// Offsets in a set and in a way. The first word of a set counts the BPF programs that change the set or try to.
const (
	firstWay = 8
	wayState = 0
	wayError = 8
	wayKey   = 16
)

func (s Sets) way(i int) int { return firstWay + i*(wayKey+s.Key) }
func (s Sets) size() int     { return s.way(waysOfSet) }

// Count returns how many sets a CPU has, a power of two.
func (s Sets) Count() int {
	return min(max(1<<bits.Len32((s.Keys-1)/keysPerSet), leastSets), mostSets)
}

// Bytes returns what the sets take for each CPU.
func (s Sets) Bytes() int { return s.Count() * s.size() }

func (s Sets) spec(name string) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: name, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(s.size()), MaxEntries: uint32(s.Count())}
}

// Way is a key in a set.
type Way struct {
	Row   []byte
	State []uint64
}

// Ways returns the used ways of a set of one CPU. A full set may have dropped keys, whose sums were at most the least one in it.
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

package lang

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
)

// kernelStore is a map in the kernel.
//
// Aggregations are only added to there, and by many CPUs at once, so nothing is ever taken away: a clear remembers what was read last,
// and what is read later is shown without it. What was added between a read and a clear is thus not lost. Min and Max cannot be
// subtracted; see codegen.Agg for their epochs.
type kernelStore struct {
	*kernelMap
	m      *ebpf.Map
	epochs *ebpf.Map // of min and max
	// aggs by the bytes of their key.
	aggs map[string]*kernelAgg
	// read says that aggs was filled since the last clear.
	read bool
	// cleared says that there was a clear: from then on keys whose values add up to nothing do not show.
	cleared bool
	// counts are what user space could not do; the kernel has its own.
	counts codegen.MapCounters
}

// kernelAgg is what is known of one key of an aggregation.
type kernelAgg struct {
	// last is what was read last; baseline what was read last before a clear. For min and max, last is all that was seen since the
	// clear, and there is no baseline.
	last, baseline []uint64
	// clears since the last change.
	idle int
}

func (s *kernelStore) counters() codegen.MapCounters { return s.counts }

func (s *kernelStore) row(key []any) []byte {
	if len(s.key) == 0 {
		return []byte{0, 0, 0, 0}
	}
	return s.code.Key.Append(nil, key)
}

func (s *kernelStore) keyOf(row []byte) []any {
	if len(s.key) == 0 {
		return nil
	}
	return s.code.Key.Values(row)
}

// setWord is whether a map without key was set: the first word of its value.
const setWord = 8

func (s *kernelStore) set(key, value []any) error {
	var row []byte
	if len(s.key) == 0 {
		row = append(row, 1, 0, 0, 0, 0, 0, 0, 0)
	}
	return s.put(key, s.code.Value.Append(row, value))
}

func (s *kernelStore) put(key []any, row []byte) error {
	err := s.m.Put(s.row(key), row)
	switch { // as in the kernel: the report tells of it
	case errors.Is(err, syscall.E2BIG):
		s.counts.Full++
	case errors.Is(err, syscall.ENOMEM): // an LRU map all of whose elements other CPUs are about to use
		s.counts.NoMemory++
	default:
		return err
	}
	return nil
}

// add is for begin clauses, before any program runs.
func (s *kernelStore) add(key []any, delta uint64) error {
	value, _, err := s.lookup(key)
	if err != nil {
		return err
	}
	var sum any = delta
	switch v := first(value).(type) {
	case int64:
		sum = v + int64(delta)
	case uint64:
		sum = v + delta
	}
	return s.set(key, []any{sum})
}

func first(values []any) any {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// update only counts what is absent: aggregations that other clauses than those of events add to are in user space.
func (s *kernelStore) update(_ []any, _ uint64, absent bool) error {
	if !absent {
		return fmt.Errorf("%s is aggregated in the kernel", s.name)
	}
	s.counts.Absent++
	return nil
}

func (s *kernelStore) remove(key []any) error {
	if s.agg != nil {
		delete(s.aggs, string(s.row(key)))
	}
	if len(s.key) == 0 {
		return s.m.Put(s.row(nil), make([]byte, s.m.ValueSize()))
	}
	return unlessMissing(s.m.Delete(s.row(key)))
}

func unlessMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func (s *kernelStore) lookup(key []any) ([]any, bool, error) {
	raw, err := s.m.LookupBytes(s.row(key))
	if err != nil || raw == nil {
		return nil, false, err
	}
	value, ok := s.decode(raw)
	return value, ok, nil
}

// decode reads the value of a scalar; false if a map without key was never set.
func (s *kernelStore) decode(raw []byte) ([]any, bool) {
	if len(s.key) == 0 {
		if raw[0] == 0 {
			return nil, false
		}
		raw = raw[setWord:]
	}
	return s.code.Value.Values(raw), true
}

func (s *kernelStore) state(key []any) ([]uint64, bool, error) {
	all, err := s.entries()
	if err != nil {
		return nil, false, err
	}
	row := string(s.row(key))
	for _, e := range all {
		if string(s.row(e.key)) == row {
			return e.state, true, nil
		}
	}
	return nil, false, nil
}

func (s *kernelStore) entries() ([]entry, error) {
	if s.agg == nil {
		return s.scalars()
	}
	if err := s.refresh(); err != nil {
		return nil, err
	}
	all := make([]entry, 0, len(s.aggs))
	for row, a := range s.aggs {
		if state := s.since(a); state != nil {
			all = append(all, entry{key: s.keyOf([]byte(row)), state: state})
		}
	}
	return all, nil
}

// since returns what was added after the last clear, or nil for a key that was not seen since then.
func (s *kernelStore) since(a *kernelAgg) []uint64 {
	state := append([]uint64(nil), a.last...)
	if a.baseline != nil {
		s.agg.Subtract(state, a.baseline)
	}
	// A map without key is there before anything was added: it shows as empty then.
	if (s.cleared || len(s.key) == 0) && isZero(state) {
		return nil
	}
	return state
}

func isZero(state []uint64) bool {
	for _, w := range state {
		if w != 0 {
			return false
		}
	}
	return true
}

func (s *kernelStore) scalars() ([]entry, error) {
	var all []entry
	err := s.each(func(row []byte, raw []byte) error {
		if value, ok := s.decode(raw); ok {
			all = append(all, entry{key: s.keyOf(row), value: value})
		}
		return nil
	})
	return all, err
}

// refresh reads all states of an aggregation.
func (s *kernelStore) refresh() error {
	epoch, err := s.nextEpoch()
	if err != nil {
		return err
	}
	s.read = true
	words := s.agg.Words()
	seen := make(map[string]bool, len(s.aggs))
	err = s.each(func(row, raw []byte) error {
		a := s.aggs[string(row)]
		if a == nil {
			a = &kernelAgg{}
			s.aggs[string(row)] = a
		}
		seen[string(row)] = true
		state := make([]uint64, words)
		if s.ordered() && a.last != nil {
			copy(state, a.last)
		}
		s.merge(state, raw, epoch)
		if !s.ordered() && a.last != nil && !sameState(a.last, state) || s.ordered() && !isZero(state) {
			a.idle = 0
		}
		a.last = state
		return nil
	})
	for row := range s.aggs {
		if !seen[row] && err == nil { // an LRU map has dropped it, or the program has deleted it
			delete(s.aggs, row)
		}
	}
	return err
}

func sameState(a, b []uint64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// ordered tells whether the aggregation is one of those that cannot be subtracted.
func (s *kernelStore) ordered() bool { return s.agg.Func == codegen.Min || s.agg.Func == codegen.Max }

// merge adds the parts of all CPUs.
func (s *kernelStore) merge(state []uint64, raw []byte, epoch uint64) {
	part := make([]uint64, s.agg.KernelWords())
	for len(raw) >= 8*len(part) {
		for i := range part {
			part[i] = binary.NativeEndian.Uint64(raw[8*i:])
		}
		s.agg.MergeKernel(state, part, epoch)
		raw = raw[8*len(part):]
	}
}

// nextEpoch ends the epoch of a min or max, and waits until no program writes to it any more.
func (s *kernelStore) nextEpoch() (uint64, error) {
	if !s.ordered() || s.epochs == nil { // nil: no code that is ever reached updates the map
		return 0, nil
	}
	all, err := s.epochs.LookupBytes(uint32(0))
	if err != nil {
		return 0, fmt.Errorf("epoch of %s: %w", s.name, err)
	}
	mine := all[8*s.code.Index:]
	epoch := binary.NativeEndian.Uint64(mine)
	binary.NativeEndian.PutUint64(mine, epoch+1)
	if err := s.epochs.Put(uint32(0), all); err != nil {
		return 0, fmt.Errorf("epoch of %s: %w", s.name, err)
	}
	waitForPrograms()
	return epoch, nil
}

func (s *kernelStore) clear() error {
	if s.agg == nil {
		return s.each(func(row, _ []byte) error {
			if len(s.key) == 0 {
				return s.m.Put(row, make([]byte, s.m.ValueSize()))
			}
			return unlessMissing(s.m.Delete(row))
		})
	}
	return s.forget(true)
}

func (s *kernelStore) zero() error {
	if s.agg != nil {
		return s.forget(false)
	}
	all, err := s.scalars()
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := s.set(e.key, s.newEntry(nil).value); err != nil {
			return err
		}
	}
	return nil
}

// forget makes what was read last the new baseline. Keys that do not change between two clears are deleted in the kernel, too.
func (s *kernelStore) forget(hide bool) error {
	if !s.read {
		if err := s.refresh(); err != nil {
			return err
		}
	}
	s.read, s.cleared = false, s.cleared || hide
	for row, a := range s.aggs {
		if a.idle++; a.idle > 2 && hide && len(s.key) > 0 {
			if err := unlessMissing(s.m.Delete([]byte(row))); err != nil {
				return err
			}
			delete(s.aggs, row)
			continue
		}
		if s.ordered() {
			clear(a.last)
		} else {
			a.baseline = append(a.baseline[:0], a.last...)
		}
	}
	return nil
}

// each calls fn with every key and value; the value has the parts of all CPUs, one after the other.
func (s *kernelStore) each(fn func(row, raw []byte) error) error {
	perCPU := s.m.Type() == ebpf.PerCPUHash || s.m.Type() == ebpf.PerCPUArray || s.m.Type() == ebpf.LRUCPUHash
	if len(s.key) > 0 {
		done, err := s.batches(perCPU, fn)
		if done || err != nil {
			return err
		}
	}
	row := make([]byte, s.m.KeySize())
	var one []byte
	var parts [][]byte
	into := any(&one)
	if perCPU {
		into = &parts
	}
	it := s.m.Iterate()
	for it.Next(&row, into) {
		raw := one
		if perCPU {
			raw = join(parts)
		}
		if err := fn(row, raw); err != nil {
			return err
		}
	}
	return it.Err()
}

func join(parts [][]byte) []byte {
	var raw []byte
	for _, p := range parts {
		raw = append(raw, p...)
	}
	return raw
}

// batches reads the map many keys at a time, which takes a tenth of the time of one by one. Not every kernel and map can: done is
// false then, and nothing was read.
func (s *kernelStore) batches(perCPU bool, fn func(row, raw []byte) error) (done bool, err error) {
	const memory = 4 << 20
	cpus := 1
	if perCPU {
		cpus = ebpf.MustPossibleCPU()
	}
	keySize, valueSize := int(s.m.KeySize()), int(s.m.ValueSize())
	count := min(max(memory/(valueSize*cpus), 16), int(s.m.MaxEntries()))
	keys, keyBytes := blocks(keySize, count)
	values, valueBytes := blocks(valueSize, count*cpus)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := s.m.BatchLookup(&cursor, keys, values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			if done {
				return true, err
			}
			return false, nil
		}
		done = true
		for i := range n {
			row := keyBytes[i*keySize : (i+1)*keySize]
			raw := valueBytes[i*cpus*valueSize : (i+1)*cpus*valueSize]
			if err := fn(row, raw); err != nil {
				return true, err
			}
		}
		if last {
			return true, nil
		}
	}
}

// blocks returns a slice of n arrays of size bytes, as the library wants it, and the same memory as bytes.
func blocks(size, n int) (slice any, memory []byte) {
	v := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
	return v.Interface(), unsafe.Slice((*byte)(v.UnsafePointer()), size*n)
}

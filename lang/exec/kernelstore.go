package exec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/lang/plan"
)

// kernelStore is a map in the kernel: one that no interval clause empties, or one of the two of a turnStore. User space changes it
// only before the BPF programs are attached and after they have ended.
type kernelStore struct {
	*plan.KernelMap
	m *ebpf.Map
	// sets hold the keys without room in the hash, of a map that ranks; otherwise nil.
	sets *ebpf.Map
	// counts are failed updates by user space. The kernel has counters of its own.
	counts codegen.MapCounters
}

func (s *kernelStore) counters() codegen.MapCounters { return s.counts }

func (s *kernelStore) row(key []any) []byte {
	if len(s.Key) == 0 {
		return []byte{0, 0, 0, 0}
	}
	return s.Code.Key.Append(nil, ir.Coded(s.Key, key))
}

func (s *kernelStore) keyOf(row []byte) []any {
	if len(s.Key) == 0 {
		return nil
	}
	return ir.Decoded(s.Key, s.Code.Key.Values(row))
}

// setWord is the size of the first word of the value of a map without a key: it reports whether the map was set.
const setWord = 8

func (s *kernelStore) set(key, value []any) error {
	var row []byte
	if len(s.Key) == 0 {
		row = append(row, 1, 0, 0, 0, 0, 0, 0, 0)
	}
	return s.put(key, s.Code.Value.Append(row, ir.Coded(s.Value, value)))
}

func (s *kernelStore) put(key []any, row []byte) error {
	err := s.m.Put(s.row(key), row)
	switch { // counted for the report, as in the kernel
	case errors.Is(err, syscall.E2BIG):
		s.counts.Full++
	case errors.Is(err, syscall.ENOMEM): // an LRU map whose free elements are all reserved by other CPUs
		s.counts.NoMemory++
	default:
		return err
	}
	return nil
}

// add is for begin clauses, before any BPF program runs.
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

// update only counts absent values: maps that other clauses aggregate in are in user space.
func (s *kernelStore) update(_ []any, _ uint64, absent bool) error {
	if !absent {
		return fmt.Errorf("%s is aggregated in the kernel", s.Name)
	}
	s.counts.Absent++
	return nil
}

func (s *kernelStore) updateFrom(key []any, _ uint64, _ uint32, x uint64) error {
	return s.update(key, x, false)
}

func (s *kernelStore) remove(key []any) error {
	if len(s.Key) == 0 {
		return s.m.Put(s.row(nil), s.zeros())
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

// decode decodes the value of a scalar. It returns false if a map without a key was never set.
func (s *kernelStore) decode(raw []byte) ([]any, bool) {
	if len(s.Key) == 0 {
		if raw[0] == 0 {
			return nil, false
		}
		raw = raw[setWord:]
	}
	return ir.Decoded(s.Value, s.Code.Value.Values(raw)), true
}

func (s *kernelStore) state(key []any) ([]uint64, bool, error) {
	raw, err := s.raw(s.row(key))
	if err != nil || raw == nil {
		return nil, false, err
	}
	state := s.merged(raw)
	return state, state != nil, nil
}

// raw returns the value of a key on all CPUs, or nil.
func (s *kernelStore) raw(row []byte) ([]byte, error) {
	if !s.perCPU() {
		return s.m.LookupBytes(row)
	}
	var parts [][]byte
	err := s.m.Lookup(row, &parts)
	return join(parts), unlessMissing(err)
}

func (s *kernelStore) elements() (all []ir.Element, err error) {
	if all, err = s.perKey(); err != nil || !ir.Joins(s.Key) {
		return all, err
	}
	joined := turnStore{userStore: newUserStore(s.Map, s.Code.MaxKeys)}
	for _, e := range all {
		joined.merge(e, s.Grows)
	}
	return joined.userStore.elements()
}

// perKey returns an element for each key in the kernel.
func (s *kernelStore) perKey() (all []ir.Element, err error) {
	err = s.each(func(row []byte, raw []byte) error {
		if s.Agg != nil {
			if state := s.merged(raw); state != nil {
				all = append(all, ir.Element{Key: s.keyOf(row), State: state})
			}
			return nil
		}
		if value, ok := s.decode(raw); ok {
			all = append(all, ir.Element{Key: s.keyOf(row), Value: value})
		}
		return nil
	})
	return all, err
}

// merged merges the states of all CPUs. It returns nil for a map without a key if nothing was ever added: its element always
// exists.
func (s *kernelStore) merged(raw []byte) []uint64 {
	state := make([]uint64, s.Agg.Words())
	part := make([]uint64, len(state))
	for len(raw) >= 8*len(part) {
		for i := range part {
			part[i] = binary.NativeEndian.Uint64(raw[8*i:])
		}
		s.Agg.FromKernel(state, part)
		raw = raw[8*len(part):]
	}
	if len(s.Key) == 0 && isZero(state) {
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

func (s *kernelStore) clear() error {
	if len(s.Key) == 0 {
		return s.remove(nil)
	}
	rows, err := s.rows()
	if err != nil || len(rows) == 0 {
		return err
	}
	keys, bytes := blocks(int(s.m.KeySize()), len(rows))
	copy(bytes, join(rows))
	if _, err := s.m.BatchDelete(keys, nil); err == nil {
		return nil
	}
	for _, row := range rows { // for kernels without batch deletion, and if a key has gone meanwhile
		if err := unlessMissing(s.m.Delete(row)); err != nil {
			return err
		}
	}
	return nil
}

func (s *kernelStore) rows() (all [][]byte, err error) {
	err = s.each(func(row, _ []byte) error {
		all = append(all, bytes.Clone(row))
		return nil
	})
	return all, err
}

func (s *kernelStore) zero() error {
	all, err := s.elements()
	if err != nil {
		return err
	}
	for _, e := range all {
		if s.Agg != nil {
			err = s.m.Put(s.row(e.Key), s.zeros())
		} else {
			err = s.set(e.Key, s.NewElement(nil).Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// zeros returns a value of zeros in the form that cilium/ebpf takes.
func (s *kernelStore) zeros() any {
	size := s.m.ValueSize()
	if !s.perCPU() {
		return make([]byte, size)
	}
	parts := make([][]byte, ebpf.MustPossibleCPU())
	for i := range parts {
		parts[i] = make([]byte, size)
	}
	return parts
}

// perCPU reports whether each CPU has a value of its own.
func (s *kernelStore) perCPU() bool {
	return slices.Contains([]ebpf.MapType{ebpf.PerCPUHash, ebpf.PerCPUArray, ebpf.LRUCPUHash}, s.m.Type())
}

// each calls fn with every key and value. A per-CPU value is the values of all CPUs, one after the other.
func (s *kernelStore) each(fn func(row, raw []byte) error) error {
	perCPU := s.perCPU()
	if len(s.Key) > 0 {
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

func join(parts [][]byte) []byte { return slices.Concat(parts...) }

// batches reads the map many keys at a time, which takes a tenth of the time. Not every kernel and map supports it: done is false
// then, and nothing was read.
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

// blocks returns a slice of n arrays of size bytes, in the form that cilium/ebpf takes, and the same memory as bytes.
func blocks(size, n int) (slice any, memory []byte) {
	v := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
	return v.Interface(), unsafe.Slice((*byte)(v.UnsafePointer()), size*n)
}

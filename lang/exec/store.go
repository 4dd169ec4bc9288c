package exec

import (
	linked "container/list"
	"encoding/binary"
	"slices"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/probes/event"
)

// userStore is a map in user space. Only one goroutine at a time may use it.
type userStore struct {
	m     *ir.Map
	limit int
	cells map[string]*linked.Element // by encoded key
	// order of the cells: least recently updated first if the map is an lru, otherwise oldest first.
	order *linked.List
	// counts are failed updates; in user space only full and absent occur.
	counts codegen.MapCounters
	// encoded is the buffer of the encoded key.
	encoded []byte
	// texts are the bytes of the strings in all keys and values.
	texts int
	// ranks order the cells of a map that ranks. gone is what a key without a cell may have had; nil: nothing.
	ranks ranks
	gone  []uint64
}

// cell is a key with its value.
type cell struct {
	encoded string
	rank    int // in ranks
	ir.Element
}

// newUserStore makes an empty map. maxKeys is its size if the program does not choose one.
func newUserStore(m *ir.Map, maxKeys uint32) *userStore {
	if m.MaxKeys != 0 {
		maxKeys = m.MaxKeys
	}
	return &userStore{m: m, limit: int(maxKeys), cells: map[string]*linked.Element{}, order: linked.New(), ranks: ranks{ranker: m.Agg.Ranker()}}
}

// counters returns the counts of failed updates.
func (s *userStore) counters() codegen.MapCounters { return s.counts }

// find returns the cell of a key, or nil.
func (s *userStore) find(key []any) *cell {
	s.encode(key)
	if at := s.cells[string(s.encoded)]; at != nil {
		return at.Value.(*cell)
	}
	return nil
}

// encode encodes a key as bytes. Equal keys have equal bytes. Numbers are converted to the type of their column.
func (s *userStore) encode(key []any) {
	b := s.encoded[:0]
	for _, v := range key {
		switch v := v.(type) {
		case nil:
			b = append(b, 0)
			continue
		case bool:
			b = append(b, 1)
			if v {
				b[len(b)-1] = 2
			}
		case string:
			b = binary.AppendUvarint(append(b, 1), uint64(len(v)))
			b = append(b, v...)
		default:
			b = binary.LittleEndian.AppendUint64(append(b, 1), event.To[uint64](v))
		}
	}
	s.encoded = b
}

// maxTexts bounds the strings of a map, as a program can make strings that are much longer than any of an event.
const maxTexts = 64 << 20

// textBytes returns the bytes of strings among values.
func textBytes(values []any) (n int) {
	for _, v := range values {
		if text, is := v.(string); is {
			n += len(text)
		}
	}
	return n
}

// admits makes room for the strings of a key and of its new value, or counts that there is none.
func (s *userStore) admits(key, value []any) bool {
	for {
		more := textBytes(value)
		if c := s.find(key); c != nil {
			more -= textBytes(c.Value)
		} else {
			more += textBytes(key)
		}
		switch {
		case s.texts+more <= maxTexts:
			return true
		case len(s.cells) > 0 && s.ranks.ranker != nil:
			s.giveWay()
		case len(s.cells) > 0 && s.m.Lru:
			s.drop(s.order.Front())
		default:
			s.counts.NoMemory++
			return false
		}
	}
}

// change changes the cell of a key, which gets a value if there is one. It makes the cell if there is room.
func (s *userStore) change(key, value []any, change func(*cell)) {
	if s.texts+textBytes(key)+textBytes(value) > maxTexts && !s.admits(key, value) {
		return
	}
	c := s.find(key)
	if c == nil {
		if c = s.insert(key); c == nil {
			return
		}
	} else if s.m.Lru {
		s.order.MoveToBack(s.cells[c.encoded])
	}
	before := textBytes(c.Value)
	change(c)
	s.texts += textBytes(c.Value) - before
	s.ranks.changed(c)
}

// insert makes the cell of the key that was just looked up, or counts that there is no room.
func (s *userStore) insert(key []any) *cell {
	if len(s.cells) >= s.limit {
		switch {
		case s.ranks.ranker != nil:
			s.giveWay()
		case s.m.Lru:
			s.drop(s.order.Front())
		default:
			s.counts.Full++
			return nil
		}
	}
	c := &cell{encoded: string(s.encoded), Element: s.m.NewElement(key)}
	s.cells[c.encoded] = s.order.PushBack(c)
	s.texts += textBytes(key)
	s.ranked(c)
	return c
}

func (s *userStore) drop(at *linked.Element) {
	c := s.order.Remove(at).(*cell)
	s.texts -= textBytes(c.Key) + textBytes(c.Value)
	delete(s.cells, c.encoded)
}

// set skips an absent value. A tuple may have absent elements.
func (s *userStore) set(key, value []any) error {
	if len(value) == 1 && value[0] == nil {
		s.counts.Absent++
		return nil
	}
	s.change(key, value, func(c *cell) { c.Value = ir.OfColumns(s.m.Value, value) })
	return nil
}

func (s *userStore) add(key []any, delta uint64) error {
	s.change(key, nil, func(c *cell) {
		sum := event.To[uint64](c.Value[0]) + delta
		c.Value = ir.OfColumns(s.m.Value, []any{sum})
	})
	return nil
}

func (s *userStore) update(key []any, x uint64, absent bool) error {
	if absent {
		s.counts.Absent++
		return nil
	}
	s.change(key, nil, func(c *cell) { s.m.Agg.Add(c.State, x) })
	return nil
}

// updateAt adds a value of a time, in nanoseconds since 1970.
func (s *userStore) updateAt(key []any, at, x uint64) {
	s.change(key, nil, func(c *cell) { s.m.Agg.AddAt(c.State, at, x) })
}

func (s *userStore) updateFrom(key []any, at uint64, thread uint32, x uint64) error {
	s.change(key, nil, func(c *cell) { s.m.Agg.AddFrom(c.State, at, thread, x) })
	return nil
}

func (s *userStore) remove(key []any) error {
	if c := s.find(key); c != nil {
		s.drop(s.cells[c.encoded])
	}
	return nil
}

func (s *userStore) lookup(key []any) (value []any, ok bool, err error) {
	if c := s.find(key); c != nil {
		return c.Value, true, nil
	}
	return nil, false, nil
}

// state returns the state itself, not a copy. It is valid until the next change.
func (s *userStore) state(key []any) (state []uint64, ok bool, err error) {
	if c := s.find(key); c != nil {
		return c.State, true, nil
	}
	return nil, false, nil
}

// elements shares keys and values, which are never changed in place, and copies states.
func (s *userStore) elements() ([]ir.Element, error) {
	elements := make([]ir.Element, 0, len(s.cells))
	for at := s.order.Front(); at != nil; at = at.Next() {
		e := at.Value.(*cell).Element
		e.State = slices.Clone(e.State)
		elements = append(elements, e)
	}
	return elements, nil
}

func (s *userStore) clear() error {
	clear(s.cells)
	s.order.Init()
	s.texts = 0
	s.ranks.cells, s.gone = nil, nil
	return nil
}

func (s *userStore) zero() error {
	for _, at := range s.cells {
		c := at.Value.(*cell)
		s.texts -= textBytes(c.Value)
		c.Element = s.m.NewElement(c.Key)
	}
	return nil
}

// mapStore holds the contents of one map, in the kernel or in user space. Keys are the values of expressions: int64, uint64, bool,
// string, or nil for an absent element.
type mapStore interface {
	// set, add, update and delete change the value of a key. They count what fails (see counters).
	set(key, value []any) error
	add(key []any, delta uint64) error
	update(key []any, x uint64, absent bool) error
	// updateFrom adds a value of an event of a time, on the clock of nsecs, and a thread, in a map that keeps exemplars.
	updateFrom(key []any, at uint64, thread uint32, x uint64) error
	remove(key []any) error
	// lookup returns the value of a scalar.
	lookup(key []any) (value []any, ok bool, err error)
	// state returns the state of an aggregation.
	state(key []any) (state []uint64, ok bool, err error)
	// elements returns a snapshot of all elements, in no order.
	elements() ([]ir.Element, error)
	// rest returns what a missing key may have had, in a map that ranks; nil: nothing.
	rest() ([]uint64, error)
	// clear removes all keys; zero zeroes their values. Both keep what was added after the last elements().
	clear() error
	zero() error
}

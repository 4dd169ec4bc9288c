package lang

import (
	linked "container/list"
	"encoding/binary"
	"slices"
	"strings"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/probes/event"
)

// userStore is a map in user space. One goroutine at a time may use it.
type userStore struct {
	m     *mapInfo
	limit int
	cells map[string]*linked.Element // by encoded key
	// order of the cells: that of the least recent update first if the map is an lru, else that of their making.
	order *linked.List
	// counts of what could not be done; in user space only full and absent happen.
	counts codegen.MapCounters
	// encoded is the buffer of the encoded key.
	encoded []byte
}

// cell is a key with its value.
type cell struct {
	encoded string
	entry
}

// newUserStore makes an empty map. Where the program gives no number of entries, it has room for the default.
func newUserStore(m *mapInfo, entries uint32) *userStore {
	if m.entries != 0 {
		entries = m.entries
	}
	return &userStore{m: m, limit: int(entries), cells: map[string]*linked.Element{}, order: linked.New()}
}

// counters tells what could not be done.
func (s *userStore) counters() codegen.MapCounters { return s.counts }

// find returns the cell of a key, or nil.
func (s *userStore) find(key []any) *cell {
	s.encode(key)
	if at := s.cells[string(s.encoded)]; at != nil {
		return at.Value.(*cell)
	}
	return nil
}

// encode writes a key as bytes, so that keys are equal if their bytes are. Numbers are taken as their column has them.
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

// change changes the cell of a key, which is made if there is room.
func (s *userStore) change(key []any, change func(*cell)) {
	c := s.find(key)
	if c == nil {
		if c = s.insert(key); c == nil {
			return
		}
	} else if s.m.lru {
		s.order.MoveToBack(s.cells[c.encoded])
	}
	change(c)
}

// insert makes the cell of a key that was just looked for, or counts that there is no room.
func (s *userStore) insert(key []any) *cell {
	if len(s.cells) >= s.limit {
		if !s.m.lru {
			s.counts.Full++
			return nil
		}
		s.drop(s.order.Front())
	}
	c := &cell{encoded: string(s.encoded), entry: s.m.newEntry(key)}
	s.cells[c.encoded] = s.order.PushBack(c)
	return c
}

func (s *userStore) drop(at *linked.Element) {
	delete(s.cells, s.order.Remove(at).(*cell).encoded)
}

// set does not take one absent value, only a tuple with absent elements.
func (s *userStore) set(key, value []any) error {
	if len(value) == 1 && value[0] == nil {
		s.counts.Absent++
		return nil
	}
	s.change(key, func(c *cell) { c.value = ofColumns(s.m.value, value) })
	return nil
}

func (s *userStore) add(key []any, delta uint64) error {
	s.change(key, func(c *cell) {
		sum := event.To[uint64](c.value[0]) + delta
		c.value = ofColumns(s.m.value, []any{sum})
	})
	return nil
}

func (s *userStore) update(key []any, x uint64, absent bool) error {
	if absent {
		s.counts.Absent++
		return nil
	}
	s.change(key, func(c *cell) { s.m.agg.Add(c.state, x) })
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
		return c.value, true, nil
	}
	return nil, false, nil
}

// state returns the state itself, not a copy: it is valid until the next change.
func (s *userStore) state(key []any) (state []uint64, ok bool, err error) {
	if c := s.find(key); c != nil {
		return c.state, true, nil
	}
	return nil, false, nil
}

// entries shares keys and values, which are never changed in place, and copies states.
func (s *userStore) entries() ([]entry, error) {
	entries := make([]entry, 0, len(s.cells))
	for at := s.order.Front(); at != nil; at = at.Next() {
		e := at.Value.(*cell).entry
		e.state = slices.Clone(e.state)
		entries = append(entries, e)
	}
	return entries, nil
}

func (s *userStore) clear() error {
	clear(s.cells)
	s.order.Init()
	return nil
}

func (s *userStore) zero() error {
	for _, at := range s.cells {
		c := at.Value.(*cell)
		c.entry = s.m.newEntry(c.key)
	}
	return nil
}

// newEntry makes an entry of zeros. It copies the key.
func (m *mapInfo) newEntry(key []any) entry {
	e := entry{key: ofColumns(m.key, key)}
	if m.agg != nil {
		e.state = make([]uint64, m.agg.Words())
		return e
	}
	for _, c := range m.value {
		e.value = append(e.value, zeroOf(c.typ, nil))
	}
	return e
}

// ofColumns copies values, numbers being made what their column has.
func ofColumns(columns []column, values []any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = as(columns[i].typ.Kind, v)
	}
	return out
}

// zeroOf returns the value of what was never set.
func zeroOf(t event.Type, elems []event.Type) any {
	switch t.Kind {
	case event.Int:
		return int64(0)
	case event.Uint, format.Stack:
		return uint64(0)
	case event.Bool:
		return false
	case event.String:
		return ""
	case event.GID:
		return strings.Repeat("\x00", 16)
	case format.Array:
		return []any{}
	}
	values := make([]any, len(elems))
	for i, elem := range elems {
		values[i] = zeroOf(elem, nil)
	}
	return values
}

package event

import "fmt"

// RecordedValue is a 64-bit number that was computed when the event happened: it is at At in the record if the byte at HasAt is not 0.
type RecordedValue struct{ At, HasAt int }

// NewRecordedLayout describes the records of a recorded probe: size bytes each, with the fields at these places, and values. A field
// without a place is absent. It fails if a place is not within the record.
func NewRecordedLayout(id int, p *Probe, size int, places []Place, values []RecordedValue) (*Layout, error) {
	l := &Layout{ID: id, Probe: p, Size: size, places: make([]Place, len(p.Fields))}
	for _, pl := range places {
		f := pl.Field
		switch {
		case f.index >= len(p.Fields) || p.Fields[f.index] != f:
			return nil, fmt.Errorf("%s has no field %s", p, f.Name)
		case pl.Constant != nil:
		case f.Type.Size < 1 || pl.At < recordHeader || pl.At > size-f.Type.Size:
			return nil, fmt.Errorf("field %s of %d bytes at %d is not within a record of %d bytes", f.Name, f.Type.Size, pl.At, size)
		case pl.HasMask != 0 && (pl.HasAt < recordHeader || pl.HasAt >= size):
			return nil, fmt.Errorf("presence of field %s at %d is not within a record of %d bytes", f.Name, pl.HasAt, size)
		case !f.Type.holds():
			return nil, fmt.Errorf("field %s: no value of its kind has %d bytes", f.Name, f.Type.Size)
		}
		l.Fields = append(l.Fields, f)
		l.places[f.index] = pl
	}
	for _, v := range values {
		if v.At < recordHeader || v.At > size-8 || v.HasAt < recordHeader || v.HasAt >= size {
			return nil, fmt.Errorf("a value at %d and its presence at %d are not within a record of %d bytes", v.At, v.HasAt, size)
		}
		l.slots = append(l.slots, slot{typ: Type{Kind: Uint, Size: 8}, at: v.At, size: 8, presence: v.HasAt})
	}
	return l, nil
}

// holds reports whether the kind can have values of that size.
func (t Type) holds() bool {
	switch t.Kind {
	case Int, Uint:
		return t.Size == 1 || t.Size == 2 || t.Size == 4 || t.Size == 8
	case Bool:
		return t.Size == 1
	case GID:
		return t.Size == 16
	case String:
		return t.Size > 0
	}
	return false
}

// Places returns where the fields are in the records.
func (l *Layout) Places() []Place {
	places := make([]Place, len(l.Fields))
	for i, f := range l.Fields {
		places[i] = l.places[f.index]
	}
	return places
}

// Record returns the event as it was written: Layout().Size bytes, which begin with the ID of the layout in 64 bits. It is valid as long as
// the event is.
func (e *Event) Record() []byte { return e.raw[:e.layout.Size] }

package codegen

import (
	"bytes"
	"encoding/binary"
)

// Row is the layout of a key or of a value: one column after the other. Numbers and booleans take 8 bytes; strings and bytes take
// their size rounded up to 8. The presence bytes of optional columns come last, followed by zeros up to a multiple of 8. Every byte
// is written, so equal values have equal bytes.
type Row struct {
	Columns []Column
	Size    int
}

// Column is one value in a row.
type Column struct {
	Type     Type
	Optional bool
	Offset   int
	Presence int // of optional columns: offset of the byte that is 1 if the value is present
}

// NewRow lays out columns. It reads only their Type and Optional.
func NewRow(columns ...Column) Row {
	var r Row
	for _, c := range columns {
		c.Offset = r.Size
		r.Size += c.Type.width()
		r.Columns = append(r.Columns, c)
	}
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Optional {
			c.Presence = r.Size
			r.Size++
		}
	}
	r.Size = roundUp(r.Size)
	return r
}

func (t Type) width() int {
	if t.Kind == String || t.Kind == Bytes {
		return roundUp(t.Size)
	}
	return 8
}

func roundUp(n int) int { return (n + 7) &^ 7 }

// Append appends the row of values: int64, uint64, bool, string, or nil for an absent value.
func (r Row) Append(b []byte, values []any) []byte {
	start := len(b)
	b = append(b, make([]byte, r.Size)...)
	row := b[start:]
	for i, c := range r.Columns {
		if values[i] == nil {
			continue
		}
		if c.Optional {
			row[c.Presence] = 1
		}
		switch v := values[i].(type) {
		case int64:
			binary.LittleEndian.PutUint64(row[c.Offset:], uint64(v))
		case uint64:
			binary.LittleEndian.PutUint64(row[c.Offset:], v)
		case bool:
			if v {
				row[c.Offset] = 1
			}
		case string:
			copy(row[c.Offset:c.Offset+c.Type.Size], v)
		}
	}
	return b
}

// Values decodes a row.
func (r Row) Values(row []byte) []any {
	values := make([]any, len(r.Columns))
	for i, c := range r.Columns {
		if c.Optional && row[c.Presence] == 0 {
			continue
		}
		values[i] = c.Type.Decode(row[c.Offset:])
	}
	return values
}

// Decode decodes a value as generated code stores it in rows and records.
func (t Type) Decode(raw []byte) any {
	switch t.Kind {
	case Int:
		return int64(binary.LittleEndian.Uint64(raw))
	case Uint:
		return binary.LittleEndian.Uint64(raw)
	case Bool:
		return raw[0] != 0
	case String:
		raw, _, _ = bytes.Cut(raw[:t.Size], []byte{0})
		return string(raw)
	default:
		return string(raw[:t.Size])
	}
}

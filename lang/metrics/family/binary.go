package family

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Set is all families at a moment, in the form in which one process sends them to another of the same version. As JSON, 10,000 series would take
// longer than everything besides.
//
// A number is a varint, a float its eight bytes, and a list its length and its elements. A text is the number of an earlier one, or 0 and the
// text: series repeat labels. A time is its distance from the one before.
type Set []Family

// form is the first byte of a set. It changes with the form.
const form = 1

// MarshalBinary returns the bytes of a set.
func (s Set) MarshalBinary() ([]byte, error) {
	c := coder{data: []byte{form}, numbers: map[string]uint64{}}
	list(&c, &s, c.family)
	return c.data, c.err
}

// UnmarshalBinary reads a set. Whatever the bytes are, they make it need only some times their own memory.
func (s *Set) UnmarshalBinary(data []byte) error {
	if len(data) == 0 || data[0] != form {
		return errors.New("these are no families: are both processes of one version?")
	}
	c := coder{reads: true, data: data[1:]}
	var all Set
	list(&c, &all, c.family)
	if len(c.data) > 0 {
		c.fail("%d bytes are left", len(c.data))
	}
	if c.err != nil {
		return fmt.Errorf("families: %w", c.err)
	}
	*s = all
	return nil
}

// coder writes what its methods are given to the end of data, or reads it from the beginning. So the order of all things stands in one place.
type coder struct {
	reads bool
	data  []byte
	err   error // the first one; after it, nothing is read
	// numbers has the numbers of texts that were written, and texts those that were read.
	numbers map[string]uint64
	texts   []string
	// last is the time before.
	last time.Time
}

func (c *coder) family(f *Family) {
	c.text(&f.Name)
	c.text(&f.Help)
	c.text(&f.Unit)
	integer(c, &f.Kind)
	list(c, &f.Labels, c.text)
	list(c, &f.Series, c.series)
	if c.reads && !f.whole() {
		c.fail("%s has series of another kind", f.Name)
	}
}

// whole reports whether each series has what its family needs.
func (f *Family) whole() bool {
	return f.Kind <= Distribution && !slices.ContainsFunc(f.Series, func(s Series) bool {
		return len(s.Labels) != len(f.Labels) || (s.Buckets != nil) != (f.Kind == Distribution)
	})
}

func (c *coder) series(s *Series) {
	list(c, &s.Labels, c.text)
	c.truth(&s.Overflow)
	c.time(&s.Created)
	c.float(&s.Value)
	integer(c, &s.Count)
	buckets := s.Buckets != nil
	if c.truth(&buckets); !buckets {
		return
	}
	if c.reads {
		s.Buckets = &Buckets{}
	}
	c.buckets(s.Buckets)
}

func (c *coder) buckets(b *Buckets) {
	list(c, &b.Classic, func(b *ClassicBucket) { c.float(&b.Upper); integer(c, &b.Count) })
	c.truth(&b.HasNative)
	integer(c, &b.Schema)
	integer(c, &b.Zero)
	list(c, &b.Positive, c.native)
	list(c, &b.Negative, c.native)
	list(c, &b.Exemplars, func(e *Exemplar) { c.float(&e.Value); integer(c, &e.TID); c.time(&e.Time) })
}

func (c *coder) native(b *NativeBucket) { integer(c, &b.Index); integer(c, &b.Count) }

// mostAtOnce is how many elements a list gets room for before any was read.
const mostAtOnce = 1 << 14

func list[S ~[]T, T any](c *coder, all *S, each func(*T)) {
	n := len(*all)
	integer(c, &n)
	if !c.reads {
		for i := range *all {
			each(&(*all)[i])
		}
		return
	}
	if n < 0 || n > len(c.data) { // each has a byte at least
		c.fail("a list is longer than what is left")
		return
	}
	if n > 0 {
		*all = make(S, 0, min(n, mostAtOnce))
	}
	for i := 0; i < n && c.err == nil; i++ {
		*all = append(*all, *new(T))
		each(&(*all)[i])
	}
}

// text writes or reads a text. Invalid UTF-8 is replaced: no format of metrics may have it.
func (c *coder) text(s *string) {
	n := c.numbers[*s]
	if integer(c, &n); n > 0 {
		if c.reads && n <= uint64(len(c.texts)) {
			*s = c.texts[n-1]
		} else if c.reads {
			c.fail("there is no text %d", n)
		}
		return
	}
	size := len(*s)
	if integer(c, &size); !c.reads {
		c.numbers[*s] = uint64(len(c.numbers) + 1)
		c.data = append(c.data, *s...)
		return
	}
	if size < 0 || size > len(c.data) {
		c.fail("a text is longer than what is left")
		return
	}
	*s = strings.ToValidUTF8(string(c.data[:size]), "\uFFFD")
	c.data, c.texts = c.data[size:], append(c.texts, *s)
}

// time writes or reads a time in UTC.
func (c *coder) time(t *time.Time) {
	seconds, nanoseconds := t.Unix()-c.last.Unix(), t.Nanosecond()-c.last.Nanosecond()
	integer(c, &seconds)
	if integer(c, &nanoseconds); c.reads {
		*t = time.Unix(c.last.Unix()+seconds, int64(c.last.Nanosecond()+nanoseconds)).UTC()
	}
	c.last = *t
}

func (c *coder) truth(b *bool) {
	n := uint8(one(*b))
	if integer(c, &n); c.reads {
		*b = n != 0
	}
}

func (c *coder) float(f *float64) {
	if !c.reads {
		c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(*f))
		return
	}
	if len(c.data) < 8 {
		c.fail("a float ends too early")
		return
	}
	*f, c.data = math.Float64frombits(binary.LittleEndian.Uint64(c.data)), c.data[8:]
}

func integer[T ~int | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64](c *coder, v *T) {
	if !c.reads {
		c.data = binary.AppendVarint(c.data, int64(*v))
		return
	}
	n, size := binary.Varint(c.data)
	if *v = T(n); size <= 0 {
		c.fail("a number ends too early")
		return
	}
	c.data = c.data[size:]
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.data = nil
}

package run

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"trace/lang/syntax"
)

// sizeUnits are the units of a size, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseBytes reads a size like 4096 or 4KiB.
func parseBytes(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = number, u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	return n * unit, err
}

// FormatBytes writes a size in the largest unit in which it is a whole number: 4KiB.
func FormatBytes(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// RingSize is the value of a flag: the size of a ring buffer in bytes, written like 4KiB.
type RingSize int

// Type names the values in the help.
func (*RingSize) Type() string { return "SIZE" }

// String returns the size as a user writes it.
func (r *RingSize) String() string { return FormatBytes(int64(*r)) }

// Set reads a value.
func (r *RingSize) Set(s string) error {
	n, err := parseBytes(s)
	// The kernel takes powers of two.
	if least := RingSize(os.Getpagesize()); err != nil || n < int64(least) || n > 1<<30 || n&(n-1) != 0 {
		return fmt.Errorf("must be a power of two from %v to 1GiB, like 64KiB or 16MiB", &least)
	}
	*r = RingSize(n)
	return nil
}

// leastRing is the least size of a ring of files: its eight files have a header and at least one block of 1 MiB each.
const leastRing = 16 << 20

// FilesSize is the value of a flag: the size of a ring of files in bytes, written like 4GiB.
type FilesSize int64

// Type names the values in the help.
func (*FilesSize) Type() string { return "SIZE" }

// String returns the size as a user writes it, or "" without one.
func (t *FilesSize) String() string {
	if *t == 0 {
		return ""
	}
	return FormatBytes(int64(*t))
}

// Set reads a value.
func (t *FilesSize) Set(s string) error {
	n, err := parseBytes(s)
	switch {
	case err != nil || n <= 0:
		return errors.New("must be a size like 100MiB or 4GiB")
	case n < leastRing:
		return fmt.Errorf("must be at least %s, for a ring of files", FormatBytes(leastRing))
	}
	*t = FilesSize(n)
	return nil
}

// Duration is the value of a flag: a duration, or a number of seconds.
type Duration time.Duration

// Type names the values in the help.
func (*Duration) Type() string { return "DURATION" }

// String returns the duration as a user writes it, or "" without one.
func (d *Duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Set reads a value.
func (d *Duration) Set(s string) error {
	n, err := syntax.ParseDuration(s)
	if err == nil && n <= 0 {
		err = errors.New("must be greater than 0")
	}
	*d = Duration(n)
	return err
}

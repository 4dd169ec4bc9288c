package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang"
)

// flagError says in our words what pflag found wrong.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usagef("%w (trace --help lists the flags)", err)
	}
	cause := invalid.Unwrap()
	var number *strconv.NumError
	if errors.As(cause, &number) {
		cause = number.Err // without the name of the Go function
	}
	return usagef("--%s %s: %w", invalid.GetFlag().Name, invalid.GetValue(), cause)
}

// formatFlag is the format of the data, as a flag.
type formatFlag struct{ lang.Format }

func (f *formatFlag) String() string { return string(f.Format) }
func (*formatFlag) Type() string     { return "FORMAT" }

func (f *formatFlag) Set(s string) (err error) {
	f.Format, err = lang.ParseFormat(s)
	return err
}

// ringSize is the size of a ring buffer in bytes, written like 4KiB.
type ringSize int

// sizeUnits are the units of a size, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func (*ringSize) Type() string { return "SIZE" }

func (r *ringSize) String() string {
	for _, u := range sizeUnits {
		if n := int(*r); n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return strconv.Itoa(int(*r))
}

func (r *ringSize) Set(s string) error {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = number, int64(u.bytes)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	n *= unit
	// The kernel takes powers of two.
	if least := ringSize(os.Getpagesize()); err != nil || n < int64(least) || n > 1<<30 || n&(n-1) != 0 {
		return fmt.Errorf("must be a power of two from %v to 1GiB, like 64KiB or 16MiB", &least)
	}
	*r = ringSize(n)
	return nil
}

package run

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"trace/lang/syntax"
)

// Burst is how long programs that are traps in the traced program are attached in each Period, as a flag: 100ms/1s. The zero value attaches
// them all the time.
type Burst struct{ On, Period time.Duration }

// Type names the values in the help.
func (*Burst) Type() string { return "ON/PERIOD" }

// String returns the value as it is written, "" without one.
func (b *Burst) String() string {
	if *b == (Burst{}) {
		return ""
	}
	return fmt.Sprintf("%v/%v", b.On, b.Period)
}

// Set reads a value.
func (b *Burst) Set(s string) error {
	on, period, _ := strings.Cut(s, "/")
	var errs [2]error
	b.On, errs[0] = syntax.ParseDuration(on)
	b.Period, errs[1] = syntax.ParseDuration(period)
	switch {
	case errs != [2]error{}:
		return errors.New("expected two durations, like 100ms/1s: attached for 100 ms in each second")
	case b.On < leastBurst:
		return fmt.Errorf("attaching takes about as long: use at least %v/%v", leastBurst, 10*leastBurst)
	case b.On >= b.Period:
		return fmt.Errorf("%v is not a part of %v; without --burst it is attached all the time", b.On, b.Period)
	}
	return nil
}

// leastBurst is the shortest window: opening it takes some ms.
const leastBurst = 10 * time.Millisecond

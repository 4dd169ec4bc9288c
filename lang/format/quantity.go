package format

import (
	"math"
	"strconv"
	"strings"

	"trace/probes/event"
)

// This file writes durations and sizes for people. JSON and CSV, for programs, have plain numbers instead.

// AppendSign appends the sign of a number and returns its size.
func AppendSign(b []byte, v any) ([]byte, uint64) {
	if i, ok := v.(int64); ok && i < 0 {
		return append(b, '-'), -uint64(i)
	}
	return b, event.To[uint64](v)
}

// AppendDuration appends nanoseconds with three digits: 850ns 12.3us 1.2ms 3.05s. From one minute up it appends whole seconds:
// 1m30s 2h5s 3d.
func AppendDuration(b []byte, v any) []byte { return AppendDurationWithin(b, v, math.MaxUint64) }

const second = 1_000_000_000

// AppendDurationWithin appends nanoseconds with at least three digits, and with enough digits to round by at most a quarter of gap.
func AppendDurationWithin(b []byte, v any, gap uint64) []byte {
	b, n := AppendSign(b, v)
	if n == 0 {
		return append(b, "0s"...)
	}
	if n >= 60*second-second/20 && (n%second == 0 || gap >= 2*second) { // 59.95s and more round to 1m
		return appendClockTime(b, n/second+(n%second+second/2)/second)
	}
	unit, name := uint64(1), "ns"
	for _, next := range []string{"us", "ms", "s"} {
		// 999.5us and more round to 1ms.
		if n < unit*1000-unit/2 {
			break
		}
		unit, name = unit*1000, next
	}
	number := float64(n) / float64(unit)
	decimals := 0
	switch {
	case number < 10:
		decimals = 2
	case number < 100:
		decimals = 1
	}
	for decimals < 9 && float64(unit) > math.Pow10(decimals)*float64(gap)/2 {
		decimals++
	}
	digits := strconv.FormatFloat(number, 'f', decimals, 64)
	if decimals > 0 {
		digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	}
	return append(append(b, digits...), name...)
}

// appendClockTime appends seconds as days, hours, minutes and seconds, leaving out zeros.
func appendClockTime(b []byte, seconds uint64) []byte {
	for _, unit := range []struct {
		seconds uint64
		name    byte
	}{{24 * 60 * 60, 'd'}, {60 * 60, 'h'}, {60, 'm'}, {1, 's'}} {
		if n := seconds / unit.seconds; n > 0 {
			b = append(strconv.AppendUint(b, n, 10), unit.name)
		}
		seconds %= unit.seconds
	}
	return b
}

// SizeUnits above the byte, each 1024 times the one before.
var SizeUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// readable is the largest number that is written exactly. A rounded number has as many digits.
const readable = 9999

// AppendSize appends bytes. It is exact if four digits suffice, like 4KiB or 1500B. Otherwise it rounds and writes a point: 5.0GiB.
func AppendSize(b []byte, v any) []byte {
	_, n := AppendSign(nil, v)
	if exact, _ := wholeUnits(n); exact <= readable {
		return AppendExactSize(b, v)
	}
	b, _ = AppendSign(b, v)
	rounded, unit := float64(n), 0
	for rounded >= 1023.95 { // 1023.95KiB and more round to 1.0MiB
		rounded, unit = rounded/1024, unit+1
	}
	decimals := 1
	if rounded < 9.995 {
		decimals = 2
	}
	digits := strconv.FormatFloat(rounded, 'f', decimals, 64)
	if decimals == 2 {
		digits = strings.TrimSuffix(digits, "0")
	}
	return append(append(b, digits...), sizeUnit(unit)...)
}

// AppendExactSize appends bytes in the largest unit that divides them.
func AppendExactSize(b []byte, v any) []byte {
	b, n := AppendSign(b, v)
	number, unit := wholeUnits(n)
	return append(strconv.AppendUint(b, number, 10), sizeUnit(unit)...)
}

// wholeUnits returns n in the largest unit that divides it.
func wholeUnits(n uint64) (number uint64, unit int) {
	for n != 0 && n%1024 == 0 && unit < len(SizeUnits) {
		n, unit = n/1024, unit+1
	}
	return n, unit
}

// sizeUnit returns the unit of 1024 to the power of n.
func sizeUnit(n int) string {
	if n == 0 {
		return "B"
	}
	return SizeUnits[n-1]
}

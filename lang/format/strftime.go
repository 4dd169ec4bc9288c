package format

import (
	"fmt"
	"regexp"
	"time"

	clock "github.com/ncruces/go-strftime"
)

// DefaultTimeFormat is the format of time() without arguments.
const DefaultTimeFormat = "%H:%M:%S\n"

// timeConversion is a conversion of strftime with its flags and modifiers.
var timeConversion = regexp.MustCompile(`(?s)%[-:]?[EO]?.?`)

// NewTimePattern checks the format of time() or strftime(). It may have the conversions of C, %f for microseconds, %L for
// milliseconds and %N for nanoseconds. The error is a *PatternError with Arg -1.
func NewTimePattern(text string) (*Pattern, error) {
	for _, c := range timeConversion.FindAllString(text, -1) {
		// The library returns unknown conversions unchanged.
		if clock.Format(c, time.Time{}) == c {
			return nil, &PatternError{-1, fmt.Sprintf("there is no time conversion %q", c),
				"use conversions of strftime, like %H:%M:%S, %f for microseconds, or %% for a percent sign"}
		}
	}
	return &Pattern{layout: text}, nil
}

// AppendTime appends t in a format of NewTimePattern.
func AppendTime(b []byte, f *Pattern, t time.Time) []byte { return clock.AppendFormat(b, f.layout, t) }

// Strftime is the function strftime(). NewTimePattern must have checked the format.
func Strftime(format string, t time.Time) string { return clock.Format(format, t) }

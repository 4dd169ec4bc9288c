package format

import (
	"fmt"
	"regexp"
	"time"

	clock "github.com/ncruces/go-strftime"
)

// DefaultTimeFormat is that of time() without arguments.
const DefaultTimeFormat = "%H:%M:%S\n"

// timeConversion is a conversion of strftime with its flags and modifiers.
var timeConversion = regexp.MustCompile(`(?s)%[-:]?[EO]?.?`)

// NewTimePattern checks the format of time() or strftime(). It may have the conversions of C and %f, microseconds; %L and %N
// are milliseconds and nanoseconds. The error is a *PatternError with Arg -1.
func NewTimePattern(text string) (*Pattern, error) {
	for _, c := range timeConversion.FindAllString(text, -1) {
		// The library leaves what it does not know as it is.
		if clock.Format(c, time.Time{}) == c {
			return nil, &PatternError{-1, fmt.Sprintf("there is no conversion %q of a time", c),
				"they are those of strftime, like %H:%M:%S, and %f for microseconds; a percent sign is %%"}
		}
	}
	return &Pattern{layout: text}, nil
}

// AppendTime appends t as a format of NewTimePattern says.
func AppendTime(b []byte, f *Pattern, t time.Time) []byte { return clock.AppendFormat(b, f.layout, t) }

// Strftime is the function of that name. NewTimePattern has checked the format.
func Strftime(format string, t time.Time) string { return clock.Format(format, t) }

package lang

import (
	"fmt"
	"regexp"
	"time"

	clock "github.com/ncruces/go-strftime"
)

// defaultTimeFormat is that of time() without arguments.
const defaultTimeFormat = "%H:%M:%S\n"

// timeConversion is a conversion of strftime with its flags and modifiers.
var timeConversion = regexp.MustCompile(`(?s)%[-:]?[EO]?.?`)

// newTimeFormat checks the format of time() or strftime(). It may have the conversions of C and %f, microseconds; %L and %N
// are milliseconds and nanoseconds. The error is a *formatError with Arg -1.
func newTimeFormat(text string) (*pattern, error) {
	for _, c := range timeConversion.FindAllString(text, -1) {
		// The library leaves what it does not know as it is.
		if clock.Format(c, time.Time{}) == c {
			return nil, &formatError{-1, fmt.Sprintf("there is no conversion %q of a time", c),
				"they are those of strftime, like %H:%M:%S, and %f for microseconds; a percent sign is %%"}
		}
	}
	return &pattern{layout: text}, nil
}

// appendTime appends t as a format of newTimeFormat says.
func appendTime(b []byte, f *pattern, t time.Time) []byte { return clock.AppendFormat(b, f.layout, t) }

// strftime is the function of that name. newTimeFormat has checked the format.
func strftime(format string, t time.Time) string { return clock.Format(format, t) }

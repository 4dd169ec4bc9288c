package syntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration of a command line or a configuration: 500ms, 1m30s, 2d, or a number of seconds, as sleep and timeout take
// it: 5 or 0.5. It may be negative. The error does not repeat the text: the caller names its place.
func ParseDuration(text string) (time.Duration, error) {
	const hours = 24
	unit, scale := "", time.Duration(1)
	number, inDays := strings.CutSuffix(text, "d")
	if inDays {
		unit, scale = "h", hours
	}
	if _, err := strconv.ParseFloat(number, 64); err == nil && !inDays {
		unit = "s"
	}
	d, err := time.ParseDuration(number + unit)
	if err != nil || d.Abs() > math.MaxInt64/scale {
		return 0, fmt.Errorf("expected a duration, like 500ms, 10s or 1m, or a number of seconds")
	}
	return d * scale, nil
}

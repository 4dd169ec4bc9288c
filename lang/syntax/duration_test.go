package syntax

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "5s": 5 * time.Second, "1.5ms": 1500 * time.Microsecond, "1m30s": 90 * time.Second,
		"2d": 48 * time.Hour, "1.5d": 36 * time.Hour, "0": 0, "-3": -3 * time.Second, "-1h": -time.Hour, "10us": 10 * time.Microsecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "5 s", "5kb", "ten", "inf", "NaN", "1e3", "0x10", "1d2h", "d", "9999999999999", "200000d", "5s\n", "-"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

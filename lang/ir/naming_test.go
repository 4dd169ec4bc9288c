package ir

import (
	"math"
	"testing"

	"trace/probes/event"
)

// Texts are equal if and only if their codes are, and each code is one of a text.
func TestNaming(t *testing.T) {
	calls := &event.Enum{Name: "call", Names: []string{"read", "write", "open", "clone3", "map_shadow_stack"}, Values: []int64{0, 1, 2, 435, 453}}
	for _, typ := range []event.Type{{Unit: ErrorTexts}, {Unit: SignalTexts}, {Unit: CallTexts, Enum: calls}} {
		n := NamingOf(typ)
		codes := map[string]int64{"": 0}
		numbers := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt32, -1 << 33, math.MaxInt32, 1 << 33, math.MaxInt64 - 1, math.MaxInt64}
		for i := int64(-600); i <= 600; i++ {
			numbers = append(numbers, i)
		}
		texts := map[int64]string{0: ""}
		for _, i := range numbers {
			text, code := n.Of(i), n.Code(i)
			if known, is := codes[text]; is && known != code {
				t.Errorf("%q has the codes %d and %d", text, known, code)
			}
			if known, is := texts[code]; is && known != text {
				t.Errorf("%d is the code of %q and %q", code, known, text)
			}
			codes[text], texts[code] = code, text
		}
		for text, code := range codes {
			if n.Text(code) != text || n.CodeOf(text) != code {
				t.Errorf("%q has the code %d, which is the code of %q, and not %d", text, code, n.Text(code), n.CodeOf(text))
			}
		}
		for _, text := range []string{"nonsense", "Unknown signal 5", "Unknown signal x", "Killed ", "-5"} {
			if code := n.CodeOf(text); code != NoText {
				t.Errorf("%q has the code %d", text, code)
			}
		}
	}
}

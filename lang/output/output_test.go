package output

import (
	"testing"

	"trace/probes/event"
)

func TestRateDigits(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.0123456: "0.0123", 0.5: "0.5", 1.0 / 3: "0.333", 9.999: "10", 12.34: "12.3", 1234.5: "1234.5", 2e6: "2000000"} {
		if got := rateDigits(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
}

// A cell never becomes a formula, whatever it begins with.
func TestCell(t *testing.T) {
	p := &csvForm{textForm: textForm{pen: &pen{}}}
	for s, want := range map[string]string{"=1": "'=1", "+1": "'+1", "-1": "'-1", "@x": "'@x", "a=1": "a=1", "": "", "\t=1": `\t=1`, "\r=": `\r=`} {
		if got := p.plainValue(event.Type{Kind: event.String, Size: 16}, s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
	if got := p.plainValue(event.Type{Kind: event.Int, Size: 8}, int64(-5)); got != "-5" {
		t.Errorf("a number is %q", got)
	}
}

package output

import (
	"bytes"
	"encoding/csv"
	"testing"
)

// The output is valid CSV, table after table, with the values of JSON.
func TestCSV(t *testing.T) {
	var out bytes.Buffer
	p := &csvForm{textForm: textForm{pen: &pen{w: &out}}}
	for _, values := range [][]string{{"a", `b "c", d`}, {"", "x\ny"}} {
		if err := p.lines(values); err != nil {
			t.Fatal(err)
		}
	}
	got, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(got) != 2 || got[0][1] != `b "c", d` || got[1][1] != "x\ny" {
		t.Errorf("%q, %v", got, err)
	}
}

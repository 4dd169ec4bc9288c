package output

import (
	"strings"
	"testing"
)

// What all places that name the formats take from the list is right.
func TestFormats(t *testing.T) {
	if got, want := FormatList(), "text, json, csv, perfetto, folded, pprof or html"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, name := range Formats() {
		f, err := ParseFormat(name)
		if err != nil {
			t.Error(err)
		}
		if d := NewDocument(f, About{}); (d != nil) != f.AtEnd() {
			t.Errorf("%s: made at the end: %v, a document: %v", name, f.AtEnd(), d)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.HasSuffix(err.Error(), "write "+FormatList()) {
		t.Error(err)
	}
}

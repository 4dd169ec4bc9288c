package output

import (
	"strings"
	"testing"
)

// Everything that other packages take from the list of formats is right.
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
	if _, err := ParseFormat("xml"); err == nil || !strings.HasSuffix(err.Error(), "use "+FormatList()) {
		t.Error(err)
	}
}

func TestFormatOf(t *testing.T) {
	for file, want := range map[string]Format{
		"": Text, "x": Text, "x.txt": Text, "a/x.html": HTML, "X.HTM": HTML, "x.json": JSON, "x.jsonl": JSON, "x.csv": CSV, "cpu.pb.gz": Pprof, "x.gz": Text,
		"x.folded": Folded, "x.pftrace": Perfetto, "html": Text, "x.html.old": Text,
	} {
		if got := FormatOf(file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

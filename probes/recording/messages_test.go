package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A writer takes only records that its header describes.
func TestUnknownLayout(t *testing.T) {
	layouts := smallLayouts(t)
	w, err := Create(filepath.Join(t.TempDir(), "f"), Options{}, header, layouts[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events(t, layouts, 0, 100) {
		want := "<nil>"
		if e.Layout() != layouts[0] {
			want = "a record of nvme:async_event of an unknown layout"
		}
		if got := fmt.Sprint(w.Append(e)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if err := w.Close(0, nil); err != nil {
		t.Error(err)
	}
}

// Files are read together only if their fields have the same types.
func TestFieldOfAnotherType(t *testing.T) {
	var names []string
	for _, size := range []string{"4", "8"} {
		text := `{"host":"h","records":[{"group":"a","name":"b","size":64,"fields":[` +
			`{"name":"nsecs","kind":"uint","size":8,"unit":"ns","at":8},{"name":"x","kind":"uint","size":` + size + `,"at":16}]}]}`
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, made([]byte(text), lossesBlock, 0, []byte("[]")), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	const want = "a:b: field x has another type than in the files before: read the files one by one"
	if _, err := Open(names...); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

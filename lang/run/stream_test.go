package run

import (
	"bytes"
	"context"
	"testing"
)

// What is written while the stream is held waits. It comes after a release, and never after a drop.
func TestHold(t *testing.T) {
	for _, released := range []bool{true, false} {
		var out bytes.Buffer
		s := NewStream(context.Background(), nil, &out)
		s.hold()
		if _, err := s.Write([]byte("head\n")); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 0 {
			t.Errorf("%q is written", out.String())
		}
		want := "row\n"
		if released {
			want = "head\nrow\n"
			s.release()
		}
		s.drop() // what was released is no longer dropped
		if _, err := s.Write([]byte("row\n")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil || out.String() != want {
			t.Errorf("%q, %v, want %q", out.String(), err, want)
		}
	}
}

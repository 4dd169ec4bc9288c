package console

import (
	"bytes"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := &Progress{terminal: &b, began: time.Now()}
	text := func(time.Duration) string { return "50%" }
	p.Show(text)
	if b.Len() > 0 {
		t.Errorf("told at once: %q", b.String())
	}
	p.began = p.began.Add(-patience)
	p.Show(text)
	p.Show(text) // too soon
	p.Clear()
	p.Clear()
	if want := "\r50%\x1b[K\r\x1b[K"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	(*Progress)(nil).Show(text)
	(*Progress)(nil).Clear()
}

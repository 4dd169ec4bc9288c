package main

import (
	"bytes"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := &progress{terminal: &b, began: time.Now()}
	text := func(time.Duration) string { return "50%" }
	p.tell(text)
	if b.Len() > 0 {
		t.Errorf("told at once: %q", b.String())
	}
	p.began = p.began.Add(-patience)
	p.tell(text)
	p.tell(text) // too soon
	p.clear()
	p.clear()
	if want := "\r50%\x1b[K\r\x1b[K"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	(*progress)(nil).tell(text)
	(*progress)(nil).clear()
}

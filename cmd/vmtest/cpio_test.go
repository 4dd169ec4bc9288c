package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

type cpioEntry struct {
	name string
	mode uint64
	data string
}

// readCPIO reads an archive by the description of the format: 110 bytes of
// header with fields of eight hexadecimal digits, name, data, padded to four.
func readCPIO(t *testing.T, b []byte) []cpioEntry {
	t.Helper()
	var out []cpioEntry
	for off := 0; off < len(b); {
		if string(b[off:off+6]) != "070701" {
			t.Fatalf("no magic number at %d: %q", off, b[off:off+6])
		}
		field := func(i int) uint64 {
			v, err := strconv.ParseUint(string(b[off+6+8*i:off+14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		size, nameLen := int(field(6)), int(field(11))
		name := string(b[off+110 : off+110+nameLen-1])
		start := (off + 110 + nameLen + 3) &^ 3
		out = append(out, cpioEntry{name, field(1), string(b[start : start+size])})
		off = (start + size + 3) &^ 3
	}
	return out
}

func TestCPIO(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	c := newCPIO(&buf)
	c.addFile("init", 0o755, []byte("abc"))
	c.addHostFile("usr/bin/program", source, 0o700)
	c.addFile("usr/bin/empty", 0o644, nil)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	want := []cpioEntry{
		{"init", 0o100755, "abc"},
		{"usr", 0o040755, ""},
		{"usr/bin", 0o040755, ""},
		{"usr/bin/program", 0o100700, "12345"},
		{"usr/bin/empty", 0o100644, ""},
		{"TRAILER!!!", 0, ""},
	}
	if got := readCPIO(t, buf.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCPIOMissingFile(t *testing.T) {
	c := newCPIO(&bytes.Buffer{})
	c.addHostFile("x", filepath.Join(t.TempDir(), "absent"), 0o644)
	if err := c.close(); err == nil {
		t.Error("a missing file is no error")
	}
}

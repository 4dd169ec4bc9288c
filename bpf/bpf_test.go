package bpf

import (
	"os"
	"strings"
	"testing"
)

// An object that is not there, or has no types, is reported by name.
func TestMessages(t *testing.T) {
	_, none := Load("none")
	_, noTypes := Types("none")
	for _, err := range []error{none, noTypes} {
		if err == nil || !strings.HasPrefix(err.Error(), "embedded object none: open ") {
			t.Error(err)
		}
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if _, err := typesIn(self); err == nil || err.Error() != "no section .BTF" {
		t.Error(err)
	}
}

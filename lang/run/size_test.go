package run

import (
	"testing"
)

func TestRingSize(t *testing.T) {
	for _, test := range []struct {
		text, want string // an empty want: an error
	}{
		{"65536", "64KiB"},
		{"64KiB", "64KiB"},
		{"1024KiB", "1MiB"},
		{"1GiB", "1GiB"},
		{"2GiB", ""},
		{"17179869185GiB", ""},
		{"3MiB", ""},
		{"512", ""},
		{"0", ""},
		{"-4KiB", ""},
		{"1.5MiB", ""},
		{"4kb", ""},
		{"", ""},
	} {
		var size RingSize
		switch err := size.Set(test.text); {
		case err != nil && test.want != "":
			t.Errorf("%q: %v", test.text, err)
		case err == nil && size.String() != test.want:
			t.Errorf("%q is %v, want %q", test.text, &size, test.want)
		}
	}
}

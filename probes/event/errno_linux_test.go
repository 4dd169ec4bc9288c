package event

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The error numbers agree with another list of Linux's.
func TestErrnoNames(t *testing.T) {
	for v := range int64(134) {
		want := unix.ErrnoName(syscall.Errno(v))
		if v == 95 {
			want = "EOPNOTSUPP"
		}
		if got := ErrnoNames().NameOf(v); got != want {
			t.Errorf("error %d is %q, want %q", v, got, want)
		}
	}
}

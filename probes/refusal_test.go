package probes

import (
	"errors"
	"regexp"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Refusals of the kernel name their cause, and what to do.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{explain(unix.EPERM), `^operation not permitted(: the limit on locked memory, \d+ KiB, may be too low \(raise it with ulimit -l\), or a| \(a) lockdown or seccomp policy forbids it\)?$`},
		{explain(unix.EINVAL), "^invalid argument$"},
		{explainClock(unix.EINVAL), `^invalid argument: at most \d+ times a second \(kernel\.perf_event_max_sample_rate\)$`},
		{explainClock(unix.EACCES), "^permission denied: a seccomp or lockdown policy forbids perf_event_open$"},
		{explainClock(unix.ENOENT), `this kernel has no perf event cpu-clock \(CONFIG_PERF_EVENTS\)$`},
		{explainClock(unix.EMFILE), "^perf_event_open: too many open files$"},
		{&RejectedError{Err: errors.New("R1 is invalid")}, "^the kernel rejects the program: R1 is invalid$"},
	} {
		if !regexp.MustCompile(test.want).MatchString(test.err.Error()) {
			t.Errorf("%v, want %s", test.err, test.want)
		}
	}
	if !errors.Is(explain(unix.EPERM), syscall.EPERM) {
		t.Error("the cause is lost")
	}
}

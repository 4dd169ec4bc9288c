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
		{refused(unix.EPERM, 64<<10), `^operation not permitted: the limit on locked memory, 64 KiB, may be too low \(raise it with ulimit -l\), or a lockdown or seccomp policy forbids it$`},
		{refused(unix.EPERM, unix.RLIM_INFINITY), `^operation not permitted \(a lockdown or seccomp policy forbids it\)$`},
		{explain(unix.EINVAL), "^invalid argument$"},
		{explainClock(unix.EINVAL), `^invalid argument: at most \d+ times a second \(kernel\.perf_event_max_sample_rate\)$`},
		{explainClock(unix.EACCES), "^permission denied: a seccomp or lockdown policy forbids perf_event_open$"},
		{explainClock(unix.ENOENT), `: this kernel has no perf event cpu-clock \(CONFIG_PERF_EVENTS\)$`},
		{explainClock(unix.EMFILE), "^perf_event_open: too many open files$"},
		{acceptsNone(Rate(5)), "^the argument 5, expected none$"},
		{clock{}.accepts(Rate(0)), "^a rate of 0 samples a second, expected at least 1$"},
		{clock{}.accepts(nil), "^a rate of 0 samples a second, expected at least 1$"},
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

package probes

import (
	"errors"
	"regexp"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Refusals of the kernel name their cause, and what to do.
func TestExplain(t *testing.T) {
	answer := func(log ...string) error { return &ebpf.VerifierError{Cause: unix.EINVAL, Log: log} }
	errA, errB := errors.New("a"), errors.New("b")
	for _, test := range []struct {
		err  error
		want string
	}{
		{explain(unix.EINVAL), "^invalid argument$"},
		{explainClock(unix.EINVAL), `^invalid argument: at most \d+ times a second \(kernel\.perf_event_max_sample_rate\)$`},
		{explainClock(unix.EACCES), "^permission denied: .*"},
		{explainClock(unix.ENOENT), `: this kernel has no perf event cpu-clock \(CONFIG_PERF_EVENTS\)$`},
		{explainClock(unix.EMFILE), "^perf_event_open: too many open files$"},
		{acceptsNone(Rate(5)), "^the argument 5, expected none$"},
		{clock{}.accepts(Rate(0)), "^a rate of 0 samples a second, expected at least 1$"},
		{clock{}.accepts(nil), "^a rate of 0 samples a second, expected at least 1$"},
		{explain(answer("0: (85) call bpf_probe_read_kernel#113", "unknown func bpf_probe_read_kernel#113")), "^operation not permitted: programs may not read the kernel's memory: .*lockdown=confidentiality"},
		{explain(answer("program of this type cannot use helper bpf_probe_read_kernel#113")), "^operation not permitted: programs may not read the kernel's memory: "},
		{explain(answer("R1 type=scalar expected=fp")), "R1 type=scalar expected=fp"},
		{causes{errA, errB, errA}, "^a; b$"},
		{causes{errA, &noFunctionError{[]string{"f", "g"}}}, "^a$"},
		{causes{&noFunctionError{[]string{"f", "g"}}, &noFunctionError{[]string{"f", "g"}}}, "^this kernel has no function f, g$"},
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

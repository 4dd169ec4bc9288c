package probes

import (
	"errors"
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
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
		{explain(answer("program of this type cannot use helper bpf_probe_read#4")), "^operation not permitted: programs may not read the kernel's memory: "},
		{explain(answer("unknown func bpf_probe_read_user#112")), "unknown func bpf_probe_read_user#112"},
		{explain(answer("R1 type=scalar expected=fp")), "R1 type=scalar expected=fp"},
		{explain(&ebpf.VerifierError{Cause: unix.EMFILE, Log: []string{"stack depth 208"}}), `^too many open files: the limit on open files is too low \(ulimit -n 1024\)$`},
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

// A limit is no answer of the verifier, whatever that has written.
func TestRejects(t *testing.T) {
	for cause, want := range map[error]bool{unix.EINVAL: true, unix.EACCES: true, unix.E2BIG: true, unix.EMFILE: false, unix.ENFILE: false, unix.ENOMEM: false} {
		if got := rejects(&ebpf.VerifierError{Cause: cause, Log: []string{"stack depth 208"}}); got != want {
			t.Errorf("%v: %v", cause, got)
		}
	}
	if rejects(&ebpf.VerifierError{Cause: unix.EPERM}) || !rejects(&ebpf.VerifierError{Cause: unix.EPERM, Log: []string{"R1 leaks addr"}}) {
		t.Error("a policy leaves no log")
	}
}

// A program whose probes are all refused ends; what is only absent may come later.
func TestAllRefused(t *testing.T) {
	refused, away := &UnavailableError{Reason: "a policy", Refused: true}, &UnavailableError{Reason: "no module"}
	if err := allRefused([]*UnavailableError{refused, refused}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	for _, all := range [][]*UnavailableError{nil, {away}, {refused, away}} {
		if err := allRefused(all); err != nil {
			t.Errorf("%v: %v", all, err)
		}
	}
}

// A probe is refused unless the host lacks what every variant traces.
func TestRefusedIsNotAbsent(t *testing.T) {
	function, tracepoint := &noFunctionError{[]string{"f"}}, kernel.NoTracepoint("t")
	module := fmt.Errorf("module m is %w (modprobe m)", kernel.ErrNotLoaded)
	for _, test := range []struct {
		causes []error
		want   bool
	}{
		{[]error{function}, false},
		{[]error{fmt.Errorf("fexit: %w", function), nil, module, tracepoint}, false},
		{[]error{kernel.ErrNoBTF}, true},
		{[]error{function, errors.New("this kernel has no kprobes")}, true},
	} {
		var err *UnavailableError
		if !errors.As(unavailable(event.NewProbe("a", "b", "", nil), test.causes, func() string { return "" }), &err) || err.Refused != test.want {
			t.Errorf("%v: %+v, want %t", test.causes, err, test.want)
		}
	}
	if got := tracepoint.Error(); got != "this kernel has no tracepoint t" {
		t.Error(got)
	}
}

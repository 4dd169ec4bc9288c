//go:build linux

package probes

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// RejectedError means that the kernel's verifier did not accept the code of a request in any variant of its probe.
type RejectedError struct {
	Probe *event.Probe
	// Err holds an *ebpf.VerifierError.
	Err error
}

func (e *RejectedError) Error() string { return "the kernel rejects the program: " + e.Err.Error() }

func (e *RejectedError) Unwrap() error { return e.Err }

// rejects reports whether an error is the verifier's answer to a program. A policy or limit refuses a program before anything is written
// into the verifier's log.
func rejects(err error) bool {
	var answer *ebpf.VerifierError
	return errors.As(err, &answer) && (len(answer.Log) > 0 || !errors.Is(err, unix.EPERM))
}

// explain adds the meaning of a refusal of bpf(2) to its error. The capabilities that a variant needs were checked before, so what is left
// is the limit on locked memory, which kernels before 5.11 count maps against, or a policy.
func explain(err error) error {
	if !errors.Is(err, unix.EPERM) || rejects(err) {
		return err
	}
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY}
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) // without an answer it is no reason
	return refused(err, limit.Cur)
}

// refused adds to a refusal what may be its reason, with this limit on locked memory.
func refused(err error, locked uint64) error {
	if locked != unix.RLIM_INFINITY {
		return fmt.Errorf("%w: the limit on locked memory, %d KiB, may be too low (raise it with ulimit -l), or a lockdown or seccomp policy forbids it",
			unix.EPERM, locked>>10)
	}
	return fmt.Errorf("%w (a lockdown or seccomp policy forbids it)", err)
}

//go:build linux

package probes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
)

// RejectedError means that the kernel's verifier did not accept the code of a request in any variant of its probe.
type RejectedError struct {
	Probe *event.Probe
	// Err holds an *ebpf.VerifierError.
	Err error
}

func (e *RejectedError) Error() string { return "the kernel rejects the program: " + e.Err.Error() }

func (e *RejectedError) Unwrap() error { return e.Err }

// limits are errors that say nothing of a program, also if the verifier has written its statistics.
var limits = []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN}

// rejects reports whether an error is the verifier's answer to a program. A policy refuses a program before anything is written into the
// verifier's log.
func rejects(err error) bool {
	var answer *ebpf.VerifierError
	limited := slices.ContainsFunc(limits, func(limit error) bool { return errors.Is(err, limit) })
	return errors.As(err, &answer) && !limited && (len(answer.Log) > 0 || !errors.Is(err, unix.EPERM))
}

// VariantStatus is one way to attach a probe.
type VariantStatus struct {
	Name string
	// Err is why it cannot be used here, nil if it can.
	Err error
	// Caps are the capabilities that it needs.
	Caps []string
}

// causes are why each variant of a hook cannot be attached.
type causes []error

// Error returns each cause once. What other kernels' functions are called is left out if there is another cause.
func (all causes) Error() string {
	var texts, others []string
	for _, err := range all {
		to := &texts
		var other *noFunctionError
		if errors.As(err, &other) {
			to = &others
		}
		if !slices.Contains(*to, err.Error()) {
			*to = append(*to, err.Error())
		}
	}
	if texts == nil {
		texts = others
	}
	return strings.Join(texts, "; ")
}

func (all causes) Unwrap() []error { return all }

// noFunctionError means that a kernel does not have the functions that a variant is for.
type noFunctionError struct{ names []string }

func (e *noFunctionError) Error() string {
	return "this kernel has no function " + strings.Join(e.names, ", ")
}

// explain adds the meaning of a refusal of bpf(2) to its error. The capabilities that a variant needs were checked before, so what is left
// is a policy, or the limit on locked memory.
func explain(err error) error {
	switch {
	case forbidsReads(err):
		return kernel.ReadsForbidden()
	case rejects(err):
		return err
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: the limit on open files is too low (ulimit -n 1024)", unix.EMFILE)
	default:
		return kernel.Refused(err)
	}
}

// forbidsReads reports whether the verifier does not know the function that reads the kernel's memory: no program of ours is wrong then. Where the
// library does not find bpf_probe_read_kernel, it calls the older bpf_probe_read.
func forbidsReads(err error) bool {
	var answer *ebpf.VerifierError
	return errors.As(err, &answer) && slices.ContainsFunc(answer.Log, func(line string) bool {
		return (strings.Contains(line, "unknown func") || strings.Contains(line, "cannot use helper")) && strings.Contains(line, "bpf_probe_read") && !strings.Contains(line, "_user")
	})
}

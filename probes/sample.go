//go:build linux

package probes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

func (clock) symbols() []string { return nil }

func (clock) accepts(a Arg) error {
	if hz, _ := a.(Rate); hz <= 0 {
		return fmt.Errorf("a rate of %d samples a second, expected at least 1", hz)
	}
	return nil
}

// variants returns the only variant, which needs none of the kernel's types.
func (clock) variants(s *hostHook) []variant {
	v := variant{way: sample{}, programs: []program{{name: sample{}.String() + "_" + s.hook.name, way: sample{}, target: clockName}}, caps: sample{}.needs(s.Kernel, nil)}
	v.check = func() error {
		if err := s.Permits(v.caps); err != nil {
			return err
		}
		return checkClocks()
	}
	return []variant{v}
}

// A sample is a program that the clocks of the CPUs call.
type sample struct{}

func (sample) String() string { return "perf_event" }

func (sample) needs(*kernel.Kernel, []string) []string { return kernel.PerfCaps() }

func (sample) prepare(*ebpf.ProgramSpec, string) {}

// exclusive: no program of a perf event runs on a CPU while another does (bpf_overflow_handler, kernel/events/core.c).
func (sample) exclusive(*kernel.Kernel) bool { return true }

// preempted: the handlers of perf events run with preemption off.
func (sample) preempted(*kernel.Kernel) bool { return false }

func (sample) missed(io.Closer) uint64 { return 0 }

// frames: the stack belongs to the registers of the interrupted code.
func (sample) frames() int { return 0 }

func (sample) readsFtrace() bool { return false }

func (sample) traps() bool { return false }

func (sample) vanishes() bool { return false }

// clockName is what samples are attached to, under perf's name.
const clockName = "cpu-clock"

const sampleRateFile = "/proc/sys/kernel/perf_event_max_sample_rate"

// openClock opens a perf event that, once enabled, ticks hz times a second on a CPU, whatever runs there.
func openClock(cpu, hz int) (*os.File, error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(hz),
		Bits:   unix.PerfBitFreq | unix.PerfBitDisabled,
		// See ticking.missed.
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, explainClock(err)
	}
	return os.NewFile(uintptr(fd), clockName), nil
}

// explainClock adds the meaning of a refusal of perf_event_open(2) to its error. The capabilities were checked before.
func explainClock(err error) error {
	switch {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: at most %d times a second (kernel.perf_event_max_sample_rate)",
			err, kernel.ReadInt(sampleRateFile))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return kernel.Refused(err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: this kernel has no perf event %s (CONFIG_PERF_EVENTS)", err, clockName)
	default:
		return fmt.Errorf("perf_event_open: %w", err)
	}
}

// eachClock opens the clock of every online CPU, and passes it to use, which keeps or closes it.
func eachClock(hz int, use func(cpu int, clock *os.File) error) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	for cpu := range cpus {
		clock, err := openClock(cpu, hz)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return err
		}
		if err := use(cpu, clock); err != nil {
			return fmt.Errorf("CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// checkClocks returns why the clocks of the CPUs cannot be used, nil if they can.
func checkClocks() error {
	return eachClock(1, func(_ int, clock *os.File) error { return clock.Close() })
}

// attach runs a program at the rate of the argument on every CPU that is online, also later.
func (sample) attach(prog *ebpf.Program, _ string, a Arg) ([]io.Closer, error) {
	c := &clocks{prog: prog, hz: int(a.(Rate)), of: make(map[int]*ticking)}
	if err := eachClock(c.hz, c.tick); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return []io.Closer{c}, nil
}

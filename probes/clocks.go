//go:build linux

package probes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

// clocks run a program at each tick of the clocks of the CPUs that are online.
type clocks struct {
	prog *ebpf.Program
	hz   int

	mu        sync.Mutex
	of        map[int]*ticking // by CPU
	closed    bool
	throttled bool
	// limit is how often the kernel let clocks tick at the last look.
	limit int
}

// ticking is the clock of a CPU, and what runs the program at its ticks: the clock itself, because kernels before 5.15 have no such link.
type ticking struct {
	clock *os.File
	link  io.Closer
	// stopped is for how long it did not tick, in ns.
	stopped int64
}

// tick runs the program at each tick of a clock, instead of an earlier one of that CPU.
func (c *clocks) tick(cpu int, clock *os.File) error {
	t := &ticking{clock: clock, link: clock}
	fd := int(clock.Fd())
	lk, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: c.prog, Attach: ebpf.AttachPerfEvent})
	if err == nil {
		t.link = lk
	} else {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, c.prog.FD())
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		return errors.Join(err, t.close())
	}
	if before := c.of[cpu]; before != nil {
		before.close() // the kernel ended it when the CPU went offline
	}
	c.of[cpu] = t
	return nil
}

func (t *ticking) close() error {
	if t.link == t.clock {
		return t.clock.Close()
	}
	return errors.Join(t.link.Close(), t.clock.Close())
}

// online samples a CPU that came online. When a CPU goes offline, the kernel ends its perf events for ever (perf_event_exit_cpu,
// kernel/events/core.c).
func (c *clocks) online(cpu int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	clock, err := openClock(cpu, c.hz)
	if errors.Is(err, unix.ENODEV) {
		return nil // it has gone again
	}
	if err != nil {
		return err
	}
	return c.tick(cpu, clock)
}

// Close ends the ticks.
func (c *clocks) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, t := range c.of {
		errs = append(errs, t.close())
	}
	clear(c.of)
	return errors.Join(errs...)
}

// leastStop is more than the time between two readings of the kernel's clock in one read of a perf event.
const leastStop = int64(time.Millisecond)

// missed reports whether the clock did not tick for a while since the last call: the kernel stops a perf event until the CPU's next tick if
// it has ticked more often since the last one than kernel.perf_event_max_sample_rate allows. In that time the event runs, but its count, in
// ns, does not grow.
func (t *ticking) missed() (bool, error) {
	var read [24]byte
	if _, err := unix.Read(int(t.clock.Fd()), read[:]); err != nil {
		return false, err
	}
	count, running := binary.NativeEndian.Uint64(read[:]), binary.NativeEndian.Uint64(read[16:])
	before := t.stopped
	t.stopped = int64(running - count)
	return t.stopped > before+leastStop, nil
}

// look reports whether the kernel has begun to stop clocks since the last call, so that samples are missing. Where it lets them tick as often as they
// do, a virtual CPU that did not run between two readings of the clock looks the same (7.2, with three emulated CPUs on two).
func (c *clocks) look() (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, limit := c.throttled, kernel.ReadInt(sampleRateFile)
	mayStop := limit < c.hz || c.limit != 0 && c.limit < c.hz
	c.throttled, c.limit = false, limit
	for _, t := range c.of {
		missed, err := t.missed()
		c.throttled = c.throttled || missed && mayStop && err == nil // without the numbers nothing is known
	}
	return c.throttled && !before
}

// whyThrottled describes missing samples.
func (c *clocks) whyThrottled() string {
	return fmt.Sprintf("samples are missing: the kernel stops clocks that tick more often than kernel.perf_event_max_sample_rate allows, now %d times a "+
		"second, for %d: raise it, or sample less often", kernel.ReadInt(sampleRateFile), c.hz)
}

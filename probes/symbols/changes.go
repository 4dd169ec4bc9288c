//go:build linux

package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"trace/probes/kernel"
)

// changes are the rings, one for each CPU, with the kernel's notes about processes: mappings, forks, execs and ends.
type changes struct {
	mu    sync.Mutex
	rings []*ring
	// uevents tell of CPUs that come online; nil: they have no rings.
	uevents *os.File
	wake    int // an eventfd
	ended   atomic.Bool
	lost    atomic.Uint64
}

// ring is a perf event's, shared with the kernel.
type ring struct {
	cpu int
	fd  int
	// ended means that nothing is added: the CPU went offline.
	ended bool
	mem   []byte
	page  *unix.PerfEventMmapPage
	data  []byte
}

// ringPages is the size of a CPU's ring, 256 KiB: about two thousand mappings.
const ringPages = 64

// watchChanges opens the rings.
func watchChanges() (c *changes, err error) {
	c = &changes{wake: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return c, fmt.Errorf("eventfd: %w", err)
	}
	c.uevents, _ = kernel.OpenUevents() // before the rings, so that no CPU comes between them
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return c, err
	}
	for cpu := range cpus {
		r, err := openRing(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return c, fmt.Errorf("watch what processes map: perf_event_open: %w", err)
		}
		c.rings = append(c.rings, r)
	}
	return c, nil
}

func openRing(cpu int) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TIME,
		Wakeup:      1,
		Clockid:     unix.CLOCK_BOOTTIME, // as bpf_ktime_get_boot_ns()
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask |
			unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, (1+ringPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ring of %d KiB: %w", ringPages*page>>10, err)
	}
	return &ring{cpu: cpu, fd: fd, mem: mem, page: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])), data: mem[page:]}, nil
}

// wait returns when there may be something to read; it returns false after stop.
func (c *changes) wait() bool {
	fds := []unix.PollFd{{Fd: int32(c.wake), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	if c.uevents != nil {
		fds[1].Fd = int32(c.uevents.Fd())
	}
	c.mu.Lock()
	for _, r := range c.rings {
		fds = append(fds, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
	}
	c.mu.Unlock()
	for !c.ended.Load() {
		if _, err := unix.Poll(fds, -1); err == nil {
			break
		} else if !errors.Is(err, unix.EINTR) {
			return false
		}
	}
	if fds[1].Revents != 0 {
		c.hear(int(fds[1].Fd))
	}
	return !c.ended.Load()
}

// hear reads a message of the kernel about its objects.
func (c *changes) hear(fd int) {
	message := make([]byte, 1<<16)
	n, _, err := unix.Recvfrom(fd, message, unix.MSG_DONTWAIT)
	if err != nil {
		c.lost.Add(1) // messages were lost
		return
	}
	if cpu, ok := kernel.OnlineCPU(message[:n]); ok {
		c.online(cpu)
	}
}

// online opens the ring of a CPU that came online. The kernel has ended the earlier one, and notes from before the new one are lost.
func (c *changes) online(cpu int) {
	c.lost.Add(1)
	r, err := openRing(cpu)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, before := range c.rings {
		before.ended = before.ended || before.cpu == cpu
	}
	c.rings = append(c.rings, r)
}

func (c *changes) stop() {
	c.ended.Store(true)
	if c.wake < 0 {
		return
	}
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, _ = unix.Write(c.wake, one) // fails only if it was woken up a great many times
}

func (c *changes) stopping() bool { return c.ended.Load() }

func (c *changes) close() error {
	var errs []error
	for _, r := range c.rings {
		errs = append(errs, r.close())
	}
	if c.uevents != nil {
		errs = append(errs, c.uevents.Close())
	}
	if c.wake >= 0 {
		errs = append(errs, unix.Close(c.wake))
	}
	return errors.Join(errs...)
}

func (r *ring) close() error { return errors.Join(unix.Munmap(r.mem), unix.Close(r.fd)) }

// read passes everything in the rings to apply.
func (c *changes) read(apply func(change)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rings {
		r.read(func(kind uint32, misc uint16, body []byte) {
			change, err := parseChange(kind, misc, body)
			switch {
			case err != nil:
				c.lost.Add(1)
			case kind == recordLost:
				c.lost.Add(change.lost)
			default:
				apply(change)
			}
		})
	}
	c.rings = slices.DeleteFunc(c.rings, func(r *ring) bool { return r.ended && r.close() == nil })
}

// read passes the notes of a ring to record: see perf_event_open(2) on data_head and data_tail.
func (r *ring) read(record func(kind uint32, misc uint16, body []byte)) {
	head := atomic.LoadUint64(&r.page.Data_head)
	tail := r.page.Data_tail
	size := uint64(len(r.data))
	for tail+8 <= head {
		header := r.bytes(tail, 8)
		length := uint64(binary.NativeEndian.Uint16(header[6:]))
		if length < 8 || tail+length > head || length > size {
			tail = head // cannot be
			break
		}
		body := r.bytes(tail+8, length-8)
		record(binary.NativeEndian.Uint32(header), binary.NativeEndian.Uint16(header[4:]), body)
		tail += length
	}
	atomic.StoreUint64(&r.page.Data_tail, tail)
}

// bytes returns n bytes of the ring from a position, joined if they wrap around.
func (r *ring) bytes(at, n uint64) []byte {
	size := uint64(len(r.data))
	from := at % size
	if from+n <= size {
		return r.data[from : from+n]
	}
	out := append([]byte(nil), r.data[from:]...)
	return append(out, r.data[:n-(size-from)]...)
}

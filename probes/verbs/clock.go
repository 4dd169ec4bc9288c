//go:build linux

package verbs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// PutClock gets the frequency of a device's counter in kHz, by the address of a context of a process.
type PutClock func(pid int, context, kilohertz uint64) error

// clocks are the counters of devices whose values programs read: of contexts with a CQ that has timestamps. A device is asked for the frequency
// only if somebody wants it.
type clocks struct {
	ask       func(pid, fd int) (kilohertz uint64, err error)
	devices   map[contextOf]int // file descriptors
	kilohertz map[contextOf]uint64
	followers []*clockFollower
}

type contextOf struct {
	process
	address uint64
}

func newClocks(f *Finder) clocks {
	ask := func(pid, fd int) (uint64, error) {
		p, err := partyOf(pid)
		if err != nil {
			return 0, err
		}
		device, err := f.device(p, pid, fd)
		if err != nil {
			return 0, err
		}
		defer device.Close()
		return proc.Ask(&f.questions, p.payer, func() (uint64, error) { return frequencyOf(device) })
	}
	return clocks{ask: ask, devices: make(map[contextOf]int), kilohertz: make(map[contextOf]uint64)}
}

type clockFollower struct {
	finder *Finder
	put    PutClock
}

// FollowClocks calls put for each counter that is known, and for those that are found until the follower is closed.
func (f *Finder) FollowClocks(put PutClock) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &clockFollower{f, put}
	f.clocks.followers = append(f.clocks.followers, w)
	for of := range f.clocks.devices {
		f.clockLocked(of, w)
	}
	return w, nil
}

// Close ends the calls.
func (w *clockFollower) Close() error {
	w.finder.mu.Lock()
	defer w.finder.mu.Unlock()
	w.finder.clocks.followers = slices.DeleteFunc(w.finder.clocks.followers, func(o *clockFollower) bool { return o == w })
	return nil
}

// timed passes the frequency of a CQ's device on, if the CQ has timestamps and that is not done.
func (f *Finder) timed(t *target, o object, memory []byte) {
	at, ok := o.calls[readTicks]
	if !ok || pointer(memory, at) == 0 {
		return
	}
	of := contextOf{t.process, pointer(memory, 0)}
	f.mu.Lock()
	_, known := f.clocks.devices[of]
	f.mu.Unlock()
	context := make([]byte, contextSize())
	if n, err := t.read(of.address, context); known || err != nil || n < len(context) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.clocks.devices) == mostKnown {
		clear(f.clocks.devices)
		clear(f.clocks.kilohertz)
	}
	f.clocks.devices[of] = int(int32(binary.NativeEndian.Uint32(context[cmdFD:])))
	f.clockLocked(of, f.clocks.followers...)
}

// clockLocked passes a frequency on to some followers. A device without one has no time.
func (f *Finder) clockLocked(of contextOf, to ...*clockFollower) {
	if len(to) == 0 {
		return
	}
	kilohertz, ok := f.clocks.kilohertz[of]
	if !ok {
		var err error
		if kilohertz, err = f.clocks.ask(of.pid, f.clocks.devices[of]); err != nil {
			if !gone(err) {
				f.reportLocked(fmt.Sprintf("verbs: hw_time of process %d is absent where it reads ticks: ask its device for their frequency: %v", of.pid, err))
			}
			return
		}
		f.clocks.kilohertz[of] = kilohertz
	}
	for _, w := range to {
		if err := w.put(of.pid, of.address, kilohertz); err != nil {
			f.reportLocked(fmt.Sprintf("verbs: hw_time of process %d is absent where it reads ticks: keep the frequency: %v", of.pid, err))
		}
	}
}

// A method call of uverbs: struct ib_uverbs_ioctl_hdr with its attributes, rdma/rdma_user_ioctl_cmds.h.
type methodCall struct {
	length, object, method, attrs uint16
	_                             uint64
	driver                        uint32
	_                             uint32
	attr                          [3]methodAttr
}

// methodAttr is struct ib_uverbs_attr. Its data are an address, or fit into it.
type methodAttr struct {
	id, length, flags, _ uint16
	data                 uint64
}

const (
	rdmaVerbsIoctl = 0xc0181b01 // _IOWR(RDMA_IOCTL_MAGIC, 1, struct ib_uverbs_ioctl_hdr)
	mandatory      = 1          // UVERBS_ATTR_F_MANDATORY
	// The attributes of UVERBS_METHOD_INVOKE_WRITE of UVERBS_OBJECT_DEVICE, both 0: rdma/ib_user_ioctl_cmds.h.
	coreIn, coreOut, writeCommand = 0, 1, 2
	// IB_USER_VERBS_EX_CMD_QUERY_DEVICE, with the bit that it is extended: rdma/ib_user_verbs.h.
	queryDeviceEx = 1 | 1<<31
	// querySize is the size of struct ib_uverbs_ex_query_device. hcaCoreClock is in struct ib_uverbs_ex_query_device_resp, which fits into
	// queriedSize.
	querySize, queriedSize, hcaCoreClock = 8, 512, 216
	// drivers bounds enum rdma_driver_id.
	drivers = 64
)

// device returns a device that a process has open.
func (f *Finder) device(by party, pid, fd int) (*os.File, error) {
	numbers := f.devices.numbers()
	is := deviceOf(pid, fd, numbers)
	for number, name := range numbers {
		if is != "" && name == is {
			return f.questions.Device(by.payer, pid, fd, number)
		}
	}
	return nil, fmt.Errorf("descriptor %d is no device", fd)
}

// frequencyOf asks the device that a process has open for the frequency of its counter in kHz: hca_core_clock, 0 if it has none. It asks by the
// file of the process, as only that has a context of the driver.
func frequencyOf(device *os.File) (kilohertz uint64, err error) {
	request, response := make([]byte, querySize), make([]byte, queriedSize)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	pinner.Pin(&request[0])
	pinner.Pin(&response[0])
	call := &methodCall{attrs: 3, attr: [3]methodAttr{
		{id: coreIn, length: querySize, flags: mandatory, data: addressOf(request)},
		{id: coreOut, length: queriedSize, flags: mandatory, data: addressOf(response)},
		{id: writeCommand, length: 8, flags: mandatory, data: queryDeviceEx},
	}}
	call.length = uint16(unsafe.Sizeof(*call))
	// The kernel refuses another driver's number (EINVAL), and has no way to ask for it by the file.
	for call.driver = 1; call.driver < drivers; call.driver++ {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), rdmaVerbsIoctl, uintptr(unsafe.Pointer(call)))
		if errno == 0 {
			return binary.NativeEndian.Uint64(response[hcaCoreClock:]), nil
		}
		if err = os.NewSyscallError("QUERY_DEVICE", errno); errno != unix.EINVAL {
			break
		}
	}
	return 0, err
}

func addressOf(buf []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&buf[0]))) }

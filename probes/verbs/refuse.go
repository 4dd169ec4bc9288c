//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// failures are how often, and since when, no context of a process was found.
type failures struct {
	times int
	since time.Time
}

// mostFailed is how often a process is searched without success: each search may read a GiB. A program opens a device, and then makes a few
// objects, before it posts.
const mostFailed = 16

// opening is how long a program may take to open a device.
const opening = time.Second

// fail counts a search without success, and returns after how long the next one is due; 0: the process had its time.
func (f *Finder) fail(self process) (again time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) == mostKnown {
		clear(f.failed)
	}
	was := f.failed[self]
	if was == nil {
		f.failed[self] = &failures{1, time.Now()}
		return settled
	}
	if was.times++; time.Since(was.since) < opening {
		return opening
	}
	return 0
}

// forgive forgets the searches without success, as the contexts of all devices were found: a device that is opened later has its own time.
func (f *Finder) forgive(self process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, self)
}

// mostKnown bounds what is remembered of processes. What was forgotten is searched again.
const mostKnown = 4096

// giveUp refuses the devices of a process without a context.
func (f *Finder) giveUp(t *target) error {
	devices, err := t.open()
	if err != nil {
		return err
	}
	left := f.unknown(t.process, devices)
	return f.refuse(t.process, left, f.why(t, left))
}

// refuse keeps why devices are not followed, and returns it.
func (f *Finder) refuse(self process, devices []handle, why error) error {
	var r *refusal
	if !errors.As(why, &r) {
		return why
	}
	if devices == nil {
		f.count(r.reason)
	}
	for _, d := range devices {
		if f.isRefused(self, d) {
			continue
		}
		f.count(r.reason)
		f.settle(self, Open{PID: self.pid, FD: d.fd, Device: d.device(), Refused: r.text})
	}
	return r
}

func (f *Finder) isRefused(self process, d handle) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.opens[self], func(o Open) bool { return o.FD == d.fd })
}

func (f *Finder) count(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[reason]++
}

// refuseQP keeps that the kernel has another QP for an address than the program.
func (f *Finder) refuseQP(self process, address uint64, number uint32) {
	text := fmt.Sprintf("verbs: process %d: ibv_wr_* of QP %d are not followed: no struct ibv_qp with that number is at %#x, where the kernel has it",
		self.pid, number, address)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.noted[text] { // it is changed several times
		f.refused[foreign]++
	}
	f.reportLocked(text)
}

// refuseObject keeps why a QP or a CQ is not followed, once for each reason of a process.
func (f *Finder) refuseObject(t *target, o object, call string, why error) {
	var r *refusal
	if !errors.As(why, &r) {
		return // the process has ended
	}
	text := fmt.Sprintf("verbs: process %d: %s are not followed: %s %s", t.pid, o.name, call, r.text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.noted[text] {
		f.refused[r.reason]++
	}
	f.reportLocked(text)
}

// Refused returns a line with the numbers of what was refused, by reason; "" if nothing was.
func (f *Finder) Refused() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(f.refused)) {
		all = append(all, fmt.Sprintf("%d %s", f.refused[reason], reason))
	}
	if all == nil {
		return ""
	}
	return "verbs: refused: " + strings.Join(all, ", ")
}

// why finds out why no context of some devices was found: what is in memory for their descriptors and handle, although something in it does
// not fit.
func (f *Finder) why(t *target, devices []handle) error {
	none := &refusal{unfound, "no struct ibv_context is in its memory, so it may use the device without libibverbs"}
	if t.flaw != nil {
		return t.flaw
	}
	if err := t.mapped(); err != nil {
		return err
	}
	var found *refusal
	err := t.scan(contextSize(), func(_ uint64, memory []byte) bool {
		for i := 0; i+contextSize() <= len(memory) && found == nil; i += 8 {
			if context := memory[i : i+contextSize()]; t.isContext(context, devices) {
				found = f.flaw(t, context)
			}
		}
		return found != nil
	})
	if err != nil {
		return err
	}
	if found == nil {
		return none
	}
	return found
}

// isContext reports whether memory belongs to one of the devices like a context: its descriptor, and a struct ibv_device with its file.
func (t *target) isContext(memory []byte, devices []handle) bool {
	fd := int(int32(binary.NativeEndian.Uint32(memory[cmdFD:])))
	i := slices.IndexFunc(devices, func(d handle) bool { return d.fd == fd })
	if i < 0 {
		return false
	}
	address := pointer(memory, 0)
	_, inMemory := t.region(address)
	return address%8 == 0 && inMemory && t.nameOf(address, deviceFile) == devices[i].name
}

// flaw returns why a context is not followed, nil if nothing is wrong with it.
func (f *Finder) flaw(t *target, context []byte) *refusal {
	if _, ok := shiftOf(context); !ok {
		return &refusal{compat, fmt.Sprintf("abi_compat of its struct ibv_context is %#x, as in programs for a libibverbs from before 2008", pointer(context, abiCompat))}
	}
	for _, call := range Calls() {
		address := pointer(context, calls[call])
		if t.dummy(address) {
			continue
		}
		var r *refusal
		if _, err := f.prover.prove(t, address); errors.As(err, &r) {
			return &refusal{r.reason, fmt.Sprintf("%s of its struct ibv_context %s", call, r.text)}
		}
	}
	return nil
}

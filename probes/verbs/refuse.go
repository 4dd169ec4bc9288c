//go:build linux

package verbs

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"trace/probes/proc"
)

// A refusal is why something is not followed. What does not fit is never guessed.
type refusal struct {
	reason string // counted by it
	text   string
}

func (r *refusal) Error() string { return r.text }

// The reasons, as [Finder.Refused] counts them.
const (
	narrow  = "programs of 32 bits"
	unfound = "devices without a context"
	compat  = "contexts of an old ABI"
	outside = "functions outside of code"
	foreign = "QPs at other addresses"
)

// wide returns why a process is refused that executes a program of 32 bits: the layouts are other ones.
func wide(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	return wideFile(f)
}

func wideFile(f io.ReaderAt) error {
	var class [1]byte
	if _, err := f.ReadAt(class[:], elf.EI_CLASS); err != nil {
		return err
	}
	if elf.Class(class[0]) == elf.ELFCLASS32 {
		return &refusal{narrow, "it executes a program of 32 bits"}
	}
	return nil
}

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
func (f *Finder) giveUp(pid int) error {
	start, err := startOf(pid)
	if err != nil {
		return err
	}
	devices, err := devicesOf(pid)
	if err != nil {
		return err
	}
	self := process{pid, start}
	left := f.unknown(self, devices)
	return f.refuse(self, left, f.why(self, left))
}

// refuse keeps why devices are not followed, and returns it.
func (f *Finder) refuse(self process, devices []handle, why error) error {
	var r *refusal
	if !errors.As(why, &r) {
		return why
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
func (f *Finder) why(self process, devices []handle) error {
	none := &refusal{unfound, "no struct ibv_context is in its memory, so it may use the device without libibverbs"}
	regions, err := proc.Mappings(self.pid)
	if err != nil {
		return err
	}
	var found *refusal
	err = scan(self.pid, regions, contextSize, func(_ uint64, memory []byte) bool {
		for i := 0; i+contextSize <= len(memory) && found == nil; i += 8 {
			if context := memory[i : i+contextSize]; isContext(self.pid, regions, context, devices) {
				found = flaw(self.pid, regions, context)
			}
		}
		return found != nil
	})
	if err != nil || found == nil {
		return errors.Join(err, none)
	}
	return found
}

// isContext reports whether memory belongs to one of the devices like a context: its descriptor, and a struct ibv_device with its file.
func isContext(pid int, regions []proc.Mapping, memory []byte, devices []handle) bool {
	fd := int(int32(binary.NativeEndian.Uint32(memory[cmdFD:])))
	i := slices.IndexFunc(devices, func(d handle) bool { return d.fd == fd })
	if i < 0 {
		return false
	}
	address := binary.NativeEndian.Uint64(memory)
	inMemory := func(r proc.Mapping) bool { return r.Start <= address && address < r.End }
	return address%8 == 0 && slices.ContainsFunc(regions, inMemory) && nameOf(pid, address, deviceFile) == devices[i].name
}

// flaw returns why a context is not followed, nil if nothing is wrong with it.
func flaw(pid int, regions []proc.Mapping, context []byte) *refusal {
	if abi := binary.NativeEndian.Uint64(context[abiCompat:]); abi != ^uint64(0) {
		return &refusal{compat, fmt.Sprintf("abi_compat of its struct ibv_context is %#x, as in programs for a libibverbs from before 2008", abi)}
	}
	for _, call := range Calls() {
		address := binary.NativeEndian.Uint64(context[calls[call]:])
		if _, ok := code(pid, regions, address); !ok {
			return &refusal{outside, fmt.Sprintf("%s of its struct ibv_context is %#x, which is in no executable mapping of a file", call, address)}
		}
	}
	return nil
}

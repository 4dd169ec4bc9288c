//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// pages are which pages of a process are there: proc_pid_pagemap(5). Others hold nothing that a program wrote, and reading one may wait for the program
// (userfaultfd, a file of FUSE) or make the kernel allocate it.
type pages struct {
	file *os.File // nil where the kernel has no such file (CONFIG_PROC_PAGE_MONITOR)
	size uint64
	// last are the entries that were read last, from the page with the number at on.
	last []byte
	at   uint64
}

// Bits of an entry. A page of a file, or of shared memory, is none that an allocator of a program gave.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
	pageEntry   = 8
)

// entriesAtOnce is how many entries are read together: 64 KiB, for 32 MiB of memory.
const entriesAtOnce = 8192

// entry returns whether a page of memory of the program is there, and how many pages from this one on are like it, as far as that was read.
func (t *target) entry(page uint64) (there bool, alike uint64, err error) {
	p := t.pages
	if p == nil {
		file, err := ask(t, lookCost, func() (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/pagemap", t.pid)) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, 0, err
		}
		p = &pages{file: file, size: uint64(os.Getpagesize())}
		t.pages = p
	}
	if p.file == nil {
		return true, entriesAtOnce, nil
	}
	if page < p.at || page-p.at >= uint64(len(p.last)/pageEntry) {
		p.last, err = ask(t, entriesAtOnce*pageEntry, func() ([]byte, error) {
			buf := make([]byte, entriesAtOnce*pageEntry)
			n, err := unix.Pread(int(p.file.Fd()), buf, int64(page*pageEntry))
			return buf[:max(n, 0)&^(pageEntry-1)], err
		})
		if p.at = page; err != nil || len(p.last) == 0 {
			p.last = nil
			return false, entriesAtOnce, err
		}
	}
	entries := p.last[(page-p.at)*pageEntry:]
	is := func(i int) bool {
		e := binary.NativeEndian.Uint64(entries[i:])
		return e&(pagePresent|pageSwapped) != 0 && e&pageOfFile == 0
	}
	there = is(0)
	for i := 0; i < len(entries) && is(i) == there; i += pageEntry {
		alike++
	}
	return there, alike, nil
}

// resident returns how many bytes from an address on can be read, at most n.
func (t *target) resident(address uint64, n int) (there int, err error) {
	for there < n {
		at := address + uint64(there)
		if at < address { // beyond the end of addresses
			break
		}
		page := at / uint64(os.Getpagesize())
		ok, alike, err := t.entry(page)
		if err != nil || !ok {
			return there, err
		}
		there = int(min(uint64(n), (page+alike)*uint64(os.Getpagesize())-address))
	}
	return there, nil
}

// searched bounds how much memory of a process is searched at a time. Contexts are allocated early, and small mappings are searched first.
const searched = 1 << 30

// heaps returns where the allocator of a process takes memory from: private memory that can be written and belongs to no file. What is searched
// first comes first.
func heaps(regions []proc.Mapping) []proc.Mapping {
	var all []proc.Mapping
	for _, r := range regions {
		if strings.HasPrefix(r.Perms, "rw-p") && r.Inode == 0 && (r.Path == "" || r.Path == "[heap]" || strings.HasPrefix(r.Path, "[anon")) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b proc.Mapping) int {
		if aHeap, bHeap := a.Path == "[heap]", b.Path == "[heap]"; aHeap != bHeap {
			return map[bool]int{true: -1, false: 1}[aHeap]
		}
		return int(min(a.End-a.Start, searched)) - int(min(b.End-b.Start, searched))
	})
	return all
}

// piece is how much memory is read together.
const piece = 256 << 10

// scan calls visit with pieces of the memory of a process, and their addresses, until it reports that it has all. Each struct of a size is in
// one piece.
func (t *target) scan(size int, visit func(at uint64, memory []byte) (all bool)) error {
	buf := make([]byte, piece)
	left := uint64(searched)
	for _, r := range heaps(t.regions) {
		for at := r.Start; at < r.End && left > 0; {
			page := uint64(os.Getpagesize())
			there, alike, err := t.entry(at / page)
			if err != nil {
				return err
			}
			if !there {
				at = (at/page + alike) * page
				left -= min(left, alike*pageEntry)
				continue
			}
			n, err := t.read(at, buf[:min(uint64(len(buf)), r.End-at)])
			if r := (*refusal)(nil); errors.Is(err, unix.EPERM) || gone(err) || errors.As(err, &r) || errors.Is(err, errStopped) {
				return err
			}
			if err != nil || n == 0 { // a page that cannot be read
				at = (at/page + 1) * page
				continue
			}
			left -= min(left, uint64(n))
			if visit(at, buf[:n]) {
				return nil
			}
			if n < len(buf) || n < 2*size { // the next page is not there
				at += uint64(n)
				continue
			}
			at += uint64(n) - uint64(size+7)&^7 // one may be across the edge
		}
	}
	return nil
}

// search finds the contexts in a piece of memory, and reports whether found has all.
func search(at uint64, memory []byte, devices []int, found func(at uint64, context []byte) bool) bool {
	for i := 0; i+contextSize() <= len(memory); i += 8 {
		if _, ok := shiftOf(memory[i:]); !ok {
			continue
		}
		fd := int(int32(binary.NativeEndian.Uint32(memory[i+cmdFD:])))
		if slices.Contains(devices, fd) && found(at+uint64(i), memory[i:i+contextSize()]) {
			return true
		}
	}
	return false
}

// searchObjects calls found with what may be an object: it begins with the address of a context, and has a function where each has one.
func searchObjects(memory []byte, objects []object, contexts []uint64, found func(o object, memory []byte)) {
	for i := 0; i+8 <= len(memory); i += 8 {
		if !slices.Contains(contexts, pointer(memory, i)) {
			continue
		}
		for _, o := range objects {
			if i+o.size <= len(memory) && pointer(memory, i+o.calls[o.has]) != 0 {
				found(o, memory[i:i+o.size])
			}
		}
	}
}

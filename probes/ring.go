//go:build linux

package probes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// A ring is the ring buffer of a session.
type ring struct {
	buffer *ebpf.Map
	reader *ringbuf.Reader
	// small means that there is no room for records.
	small bool
	early [][]byte // records from before the first call of Read
}

// openRing creates the ring buffer. If no code will refer to it, it has the least size: the usual size takes the kernel 2 ms.
func openRing(size int, small bool) (_ *ring, err error) {
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. If it cannot be raised it may still suffice; otherwise the map cannot be
	// created.
	_ = rlimit.RemoveMemlock()
	if size == 0 {
		size = DefaultRingBytes
	}
	if small {
		size = os.Getpagesize()
	}
	r := &ring{small: small}
	if r.buffer, err = ebpf.NewMap(&ebpf.MapSpec{Name: RingName, Type: ebpf.RingBuf, MaxEntries: uint32(size)}); err != nil {
		return nil, fmt.Errorf("ring buffer of %d bytes: %w", size, explain(err))
	}
	if r.reader, err = ringbuf.NewReader(r.buffer); err != nil {
		return nil, errors.Join(fmt.Errorf("ring buffer: %w", err), r.buffer.Close())
	}
	return r, nil
}

// delivers reports whether code of requests refers to the ring buffer.
func delivers(requests []*request) bool {
	return slices.ContainsFunc(requests, func(r *request) bool { return r.Code.delivers() })
}

func (c *Code) delivers() bool { return refersTo(c.Filter, RingName) || refersTo(c.Action, RingName) }

// keepEarly keeps the records that are written before the first call of Read: the ring buffer may be too small for them.
// It ends when the returned function is called.
func (r *ring) keepEarly() (stop func() error) {
	done := make(chan error, 1)
	go func() {
		var sample ringbuf.Record
		for {
			err := r.reader.ReadInto(&sample)
			if errors.Is(err, ringbuf.ErrFlushed) {
				done <- nil
				return
			}
			if err != nil {
				done <- fmt.Errorf("ring buffer: %w", err)
				return
			}
			r.early = append(r.early, bytes.Clone(sample.RawSample))
		}
	}()
	return func() error { return errors.Join(r.reader.Flush(), <-done) }
}

// unread counts the records in the buffer. The number is exact once no program writes.
func (r *ring) unread() (n int, err error) {
	size, page := int(r.buffer.MaxEntries()), os.Getpagesize()
	consumer, err := unix.Mmap(r.buffer.FD(), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("ring buffer: %w", err)
	}
	defer unix.Munmap(consumer)
	producer, err := unix.Mmap(r.buffer.FD(), int64(page), page+size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("ring buffer: %w", err)
	}
	defer unix.Munmap(producer)
	at, until := position(consumer), position(producer)
	for records := producer[page:]; at < until; {
		header := binary.NativeEndian.Uint32(records[at&uint64(size-1):])
		if header&unix.BPF_RINGBUF_DISCARD_BIT == 0 {
			n++
		}
		length := uint64(header &^ (unix.BPF_RINGBUF_DISCARD_BIT | unix.BPF_RINGBUF_BUSY_BIT))
		at += (length + unix.BPF_RINGBUF_HDR_SZ + 7) &^ 7
	}
	return n, nil
}

// position reads how far the kernel, or the reader, has come: the first word of its page (kernel/bpf/ringbuf.c, struct bpf_ringbuf).
func position(page []byte) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&page[0])))
}

// close releases the ring buffer; r is nil if the session could not be opened.
func (r *ring) close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.reader.Close(), r.buffer.Close())
}

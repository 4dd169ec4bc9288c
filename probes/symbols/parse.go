package symbols

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// file identifies a file that processes map.
type file struct {
	major, minor uint32
	inode        uint64
}

// mapping is a range of a process' memory with code.
type mapping struct {
	start, end uint64
	offset     uint64 // in the file
	file       file
	// name is the path in the process' file system, or one like [vdso]; "" for memory without a file.
	name string
	// since is when it was mapped, or, if it existed before, when it was seen; ns since boot.
	since uint64
	// there means that it was there already.
	there bool
}

// bytes estimates its memory.
func (m mapping) bytes() int { return 112 + len(m.name) }

// change is a note of the kernel about a process: a record of perf_event_open(2).
type change struct {
	kind      uint32
	pid, ppid uint32
	tid       uint32
	exec      bool
	mapping   mapping
	lost      uint64
	time      uint64
}

// Kinds of records, enum perf_event_type of linux/perf_event.h.
const (
	recordLost  = 2
	recordComm  = 3
	recordExit  = 4
	recordFork  = 7
	recordMmap2 = 10
)

// parseChange reads a record without its header. The last 8 bytes are the time, as sample_id_all asks for.
func parseChange(kind uint32, misc uint16, b []byte) (c change, err error) {
	c.kind = kind
	if len(b) < 16 {
		return c, fmt.Errorf("record %d has %d bytes", kind, len(b))
	}
	order := binary.NativeEndian
	c.time = order.Uint64(b[len(b)-8:])
	b = b[:len(b)-8]
	switch kind {
	case recordLost:
		if len(b) < 16 {
			return c, fmt.Errorf("record %d has %d bytes", kind, len(b)+8)
		}
		c.lost = order.Uint64(b[8:])
	case recordComm:
		const execBit = 1 << 13 // PERF_RECORD_MISC_COMM_EXEC
		c.pid, c.tid, c.exec = order.Uint32(b), order.Uint32(b[4:]), misc&execBit != 0
	case recordFork, recordExit:
		if len(b) < 16 {
			return c, fmt.Errorf("record %d has %d bytes", kind, len(b)+8)
		}
		c.pid, c.ppid, c.tid = order.Uint32(b), order.Uint32(b[4:]), order.Uint32(b[8:])
	case recordMmap2:
		if len(b) < 64 {
			return c, fmt.Errorf("record %d has %d bytes", kind, len(b)+8)
		}
		c.pid, c.tid = order.Uint32(b), order.Uint32(b[4:])
		m := &c.mapping
		m.start, m.offset = order.Uint64(b[8:]), order.Uint64(b[24:])
		m.end = m.start + order.Uint64(b[16:])
		m.file = file{order.Uint32(b[32:]), order.Uint32(b[36:]), order.Uint64(b[40:])}
		name, _, _ := bytes.Cut(b[64:], []byte{0})
		if m.name = string(name); m.name == "//anon" {
			m.name = ""
		}
		m.since = c.time
	}
	return c, nil
}

//go:build linux

package probes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"trace/probes/verbs"
)

// trapped is machine code that calls a function of its own: 100 times. It belongs to no function of Go, whose stacks must not have the
// return addresses of uprobes.
type trapped struct {
	code     []byte
	function uint64 // where that is
}

const trappedCalls = 100

// elfHead is the size of the head of an ELF file, the least that makes one.
const elfHead = 64

// file makes a file with the code, which exists in memory only.
func (t trapped) file() (*os.File, error) {
	fd, err := unix.MemfdCreate("trapped", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "trapped")
	head := make([]byte, elfHead, elfHead+len(t.code))
	copy(head, "\x7fELF\x02\x01\x01")
	order := binary.LittleEndian
	order.PutUint16(head[16:], 3) // ET_DYN
	order.PutUint16(head[18:], trappedMachine)
	order.PutUint32(head[20:], 1)       // EV_CURRENT
	order.PutUint16(head[52:], elfHead) // its size
	if _, err := f.Write(append(head, t.code...)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// attachToOwn attaches to a function of this process that nobody calls.
func attachToOwn(attach verbs.Attach) (io.Closer, error) {
	own, err := emulated.file()
	if err != nil {
		return nil, err
	}
	defer own.Close()
	return attach(fmt.Sprintf("/proc/self/fd/%d", own.Fd()), elfHead+emulated.function, verbs.Reach{PID: os.Getpid()})
}

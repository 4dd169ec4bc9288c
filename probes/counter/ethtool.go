//go:build linux

package counter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool reads the counters of drivers by ioctls of a socket of any family, and a service without a network has AF_UNIX: include/uapi/linux/ethtool.h.
type ethtool struct{ socket int }

func openEthtool() (ethtool, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return ethtool{socket}, os.NewSyscallError("socket", err)
}

func (e ethtool) Close() error { return unix.Close(e.socket) }

// Commands and sizes of ethtool.
const (
	getStrings = 0x1b // struct ethtool_gstrings
	getStats   = 0x1d // struct ethtool_stats
	getSetInfo = 0x37 // struct ethtool_sset_info

	statNames  = 1 // ETH_SS_STATS
	nameLength = 32
	mostStats  = 1 << 16
)

// read returns the counters of a device's driver, nil if it has none or the device is gone. A driver may change them at any time, with the
// number of its queues: so their names are read each time.
func (e ethtool) read(device string) ([]Counter, error) {
	info := make([]byte, 20) // cmd, reserved, sset_mask, data[1]
	binary.NativeEndian.PutUint64(info[8:], 1<<statNames)
	if err := e.ask(device, getSetInfo, info); err != nil {
		return nil, unlessAbsent(err)
	}
	n := int(binary.NativeEndian.Uint32(info[16:]))
	if n == 0 || n > mostStats || binary.NativeEndian.Uint64(info[8:]) == 0 {
		return nil, nil
	}
	names := make([]byte, 12+nameLength*n) // cmd, string_set, len, data
	binary.NativeEndian.PutUint32(names[4:], statNames)
	binary.NativeEndian.PutUint32(names[8:], uint32(n))
	if err := e.ask(device, getStrings, names); err != nil {
		return nil, unlessAbsent(err)
	}
	values := make([]byte, 8+8*n) // cmd, n_stats, data
	binary.NativeEndian.PutUint32(values[4:], uint32(n))
	if err := e.ask(device, getStats, values); err != nil {
		return nil, unlessAbsent(err)
	}
	return countersOf(n, names, values)
}

// countersOf returns n counters from their names and their values, if the driver has as many of both.
func countersOf(n int, names, values []byte) (counters []Counter, err error) {
	if int(binary.NativeEndian.Uint32(names[8:])) != n || int(binary.NativeEndian.Uint32(values[4:])) != n {
		return nil, errors.New("the driver has changed its counters meanwhile")
	}
	names, values = names[12:], values[8:]
	for len(values) > 0 {
		name, _, _ := bytes.Cut(names[:nameLength], []byte{0})
		counters = append(counters, Counter{string(bytes.TrimSpace(name)), binary.NativeEndian.Uint64(values)})
		names, values = names[nameLength:], values[8:]
	}
	return counters, nil
}

// unlessAbsent returns the error unless it means that there are no such counters.
func unlessAbsent(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// ask asks the driver of a device. data begins with the number of the command, and gets the answer.
func (e ethtool) ask(device string, command uint32, data []byte) error {
	binary.NativeEndian.PutUint32(data, command)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&data[0])
	request := struct { // struct ifreq, include/uapi/linux/if.h
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}{data: unsafe.Pointer(&data[0])}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("ethtool of %s: %w", device, errno)
	}
	return nil
}

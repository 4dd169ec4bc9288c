//go:build linux

package kernel

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenUevents opens the kernel's messages about its objects (lib/kobject_uevent.c). A read returns one message; it ends when the file is
// closed.
func OpenUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	const ofTheKernel = 1 // group of messages
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ofTheKernel}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// LoadedModule returns the module that a message reports as being loaded, "" for any other message. The kernel sends it before the module's
// code runs (mod_sysfs_setup, kernel/module).
func LoadedModule(message []byte) string {
	head, _, _ := bytes.Cut(message, []byte{0})
	name, found := strings.CutPrefix(string(head), "add@/module/")
	if !found || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// OnlineCPU returns the CPU that a message reports as online, also after the machine slept; ok is false for any other message.
func OnlineCPU(message []byte) (cpu int, ok bool) {
	head, _, _ := bytes.Cut(message, []byte{0})
	number, found := strings.CutPrefix(string(head), "online@/devices/system/cpu/cpu")
	cpu, err := strconv.Atoi(number)
	return cpu, found && err == nil
}

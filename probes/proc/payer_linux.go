package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// firstUserNamespace is the inode of the first one, PROC_USER_INIT_INO of include/linux/proc_ns.h.
const firstUserNamespace = 0xEFFFFFFD

// Payer returns for whom it counts what a process of a user costs. In a user namespace one user may have 65,536 ids (subuid(5)), so that is who made the
// outermost one around the process. Engines of containers that are root's give each container ids of its own: then it is the user, as it is in the first one.
func Payer(pid int, user uint32) uint32 {
	at, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return user
	}
	defer func() { unix.Close(at) }()
	const mostNested = 33 // of the kernel
	for range mostNested {
		parent, err := unix.IoctlRetInt(at, unix.NS_GET_PARENT)
		if err != nil { // it is the first one, or ours
			return user
		}
		var stat unix.Stat_t
		if err := unix.Fstat(parent, &stat); err != nil || stat.Ino == firstUserNamespace {
			unix.Close(parent)
			if maker, wrong := unix.IoctlGetUint32(at, unix.NS_GET_OWNER_UID); err == nil && wrong == nil && maker != 0 {
				return maker
			}
			return user
		}
		unix.Close(at)
		at = parent
	}
	return user
}

package wire

import (
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// allowed reports whether the process at the other end belongs to one of the users, as the kernel knows (unix(7), SO_PEERCRED).
func allowed(conn *net.UnixConn, users []int) error {
	if users == nil {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return controlErr
	}
	if err == nil && !slices.Contains(users, int(peer.Uid)) {
		err = fmt.Errorf("user %d may not ask the loader", peer.Uid)
	}
	return err
}

package wire

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the process at the other end, as the kernel knows it (unix(7), SO_PEERCRED).
func peer(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var found *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return Peer{}, controlErr
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{int(found.Pid), int(found.Uid)}, nil
}

//go:build !linux

package wire

import (
	"errors"
	"net"
)

func peer(*net.UnixConn) (Peer, error) { return Peer{}, errors.ErrUnsupported }

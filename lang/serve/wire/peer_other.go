//go:build !linux

package wire

import (
	"errors"
	"net"
)

func allowed(*net.UnixConn, []int) error { return errors.ErrUnsupported }

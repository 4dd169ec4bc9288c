package run

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// Namespace is the value of a flag: a pid namespace by the number of its inode, or by a file that is one, like /proc/PID/ns/pid.
type Namespace uint32

// Type names the values in the help.
func (*Namespace) Type() string { return "INODE" }

// String returns the number, or "" without one.
func (n *Namespace) String() string {
	if *n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*n), 10)
}

// Set reads a value.
func (n *Namespace) Set(s string) error {
	text := s
	if strings.HasPrefix(s, "/") {
		link, err := os.Readlink(s)
		if err != nil {
			return errors.Unwrap(err)
		}
		text = link
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "pid:["), "]")
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil || number == 0 {
		return errors.New("expected the number of a pid namespace, as lsns -t pid shows it, or a file like /proc/PID/ns/pid")
	}
	*n = Namespace(number)
	return nil
}

//go:build linux

package probes

import (
	"encoding/binary"

	"trace/probes/verbs"
)

// A user is struct user of bpf/users.bpf.c.
type user struct {
	qp     uint64
	pid    int
	number uint32
	event  uint32
	opened uint64
}

// The events of users, enum event of bpf/users.bpf.c.
const (
	userOpens   = 1
	userCanSend = 2
)

func userOf(record []byte) user {
	order := binary.NativeEndian
	return user{order.Uint64(record), int(order.Uint32(record[8:])), order.Uint32(record[12:]), order.Uint32(record[16:]), order.Uint64(record[24:])}
}

// look lets the functions be looked at that it may have. A process is followed before it is noted that it can send.
func (by user) look(functions *verbs.Finder) {
	switch {
	case by.event == userOpens:
		functions.Made(by.pid, by.opened)
		functions.Look(by.pid)
	case by.qp == 0:
		functions.Look(by.pid)
	default:
		functions.LookQP(by.pid, by.qp, by.number)
	}
	if by.event == userCanSend {
		functions.CanSend(by.pid, by.number)
	}
}

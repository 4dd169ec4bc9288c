//go:build linux

package probes

import (
	"encoding/binary"
	"time"

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

// settled is after how long a changed QP is looked at again: a provider may set its functions after the kernel has changed it, as mlx5 does.
const settled = 50 * time.Millisecond

// appointments are what to look at again, and when.
type appointments map[appointment]time.Time

type appointment struct {
	user
	posts bool // whether the process posts, instead of the object
}

// next is the time of the first, or zero.
func (all appointments) next() (first time.Time) {
	for _, at := range all {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// look looks at what was seen. A process is followed before it is noted that it can send.
func (all appointments) look(functions *verbs.Finder, seen map[user]bool) {
	for by := range seen {
		if by.event == userOpens {
			functions.Made(by.pid, by.opened)
		}
		if by.qp == 0 {
			all.lookInto(functions, by)
			continue
		}
		functions.LookQP(by.pid, by.qp, by.number, false)
		all[appointment{user: by}] = time.Now().Add(settled)
	}
	for by := range seen {
		if by.event == userCanSend && functions.CanSend(by.pid, by.number) {
			all[appointment{by, true}] = time.Now().Add(verbs.Quiet)
		}
	}
}

func (all appointments) lookInto(functions *verbs.Finder, by user) {
	if again := functions.Look(by.pid); again > 0 {
		all[appointment{user: by}] = time.Now().Add(again)
	}
}

// keep does what is due.
func (all appointments) keep(functions *verbs.Finder) {
	for a, at := range all {
		if time.Now().Before(at) {
			continue
		}
		delete(all, a)
		switch {
		case a.posts:
			functions.Posts(a.pid)
		case a.qp != 0:
			functions.LookQP(a.pid, a.qp, a.number, true)
		default:
			all.lookInto(functions, a.user)
		}
	}
}

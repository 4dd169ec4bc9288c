//go:build linux

package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Process is a process with open devices.
type Process struct {
	PID     int    `json:"pid"`
	Comm    string `json:"comm"`
	Devices []Open `json:"devices"`
	// QPs is how many QPs it has by the kernel's list, CanSend how many of them are in RTS.
	QPs     int `json:"qps,omitempty"`
	CanSend int `json:"qps_in_rts,omitempty"`
	// Unseen is why its data path may pass libibverbs by.
	Unseen []string `json:"unseen,omitempty"`
}

// Users looks into all processes, and returns those with open devices. The notes are what could not be found out. Whoever can send is watched until
// it calls something, by what attach attaches and callers returns.
func Users(ctx context.Context, qps func() ([]QP, error), attach Attach, callers func() (map[int]bool, error)) (users []Process, notes []string, err error) {
	f := NewFinder(nil)
	users, notes, err = f.users(ctx, qps, attach, callers)
	f.note = func(text string) { notes = append(notes, strings.TrimPrefix(text, "verbs: ")) }
	return users, notes, errors.Join(err, f.Close())
}

func (f *Finder) users(ctx context.Context, qps func() ([]QP, error), attach Attach, callers func() (map[int]bool, error)) (users []Process, notes []string, err error) {
	var messages []string
	f.note, f.QPs = func(text string) { messages = append(messages, text) }, qps
	if err := f.LookAll(ctx); err != nil {
		return nil, nil, err
	}
	opens := f.Opens()
	var listed []QP
	if len(opens) > 0 {
		if listed, err = qps(); err != nil {
			notes = append(notes, fmt.Sprintf("which QPs there are is unknown: %v", err))
		}
	}
	users = make([]Process, 0, len(opens))
	for _, o := range opens {
		if n := len(users); n == 0 || users[n-1].PID != o.PID {
			users = append(users, f.newProcess(o.PID, listed))
		}
		p := &users[len(users)-1]
		p.Devices = append(p.Devices, o)
	}
	if err := f.watch(users, attach, callers); err != nil {
		notes = append(notes, fmt.Sprintf("which processes post nothing is unknown: %v", err))
	}
	for _, text := range messages { // a message about a process with a refused device is shown with the device
		if !slices.ContainsFunc(users, func(p Process) bool { return strings.HasPrefix(text, fmt.Sprintf("verbs: process %d ", p.PID)) }) {
			notes = append(notes, strings.TrimPrefix(text, "verbs: "))
		}
	}
	if f.denied != nil {
		notes = append(notes, fmt.Sprintf("%d processes cannot be looked into, like: %v (run as root, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)", len(f.denied), f.denied[0]))
	}
	return users, notes, nil
}

func (f *Finder) newProcess(pid int, listed []QP) Process {
	p := Process{PID: pid, Comm: commOf(pid)}
	for _, qp := range listed {
		if qp.PID != pid {
			continue
		}
		if p.QPs++; qp.CanSend {
			p.CanSend++
		}
	}
	if writes, ok := f.writes[pid]; ok {
		p.Unseen = append(p.Unseen, fmt.Sprintf("it maps %s%s", writes, stillShown))
	}
	return p
}

// watch notes which processes call nothing in the time of [Quiet], of those that could, and are not known to write queues themselves.
func (f *Finder) watch(users []Process, attach Attach, callers func() (map[int]bool, error)) (err error) {
	watched := make(map[*Process][]*Follower)
	leave := func(p *Process) {
		for _, w := range watched[p] {
			err = errors.Join(err, w.Close())
		}
		delete(watched, p)
	}
	defer func() {
		for p := range watched {
			leave(p)
		}
	}()
	for i := range users {
		p := &users[i]
		if p.CanSend == 0 || p.Unseen != nil || !slices.ContainsFunc(p.Devices, Open.followed) {
			continue
		}
		for _, call := range append([]string{"post_srq_recv", startPoll, "wr_complete"}, keepers...) {
			w, err := f.Follow(call, func(pid int) bool { return pid == p.PID }, attach)
			if err != nil {
				return err
			}
			watched[p] = append(watched[p], w)
		}
	}
	for end := time.Now().Add(Quiet); len(watched) > 0 && time.Now().Before(end); time.Sleep(settled) {
		called, err := callers()
		if err != nil {
			return err
		}
		for p := range watched {
			if called[p.PID] {
				leave(p)
			}
		}
	}
	for p := range watched {
		p.Unseen = append(p.Unseen, fmt.Sprintf("it called none of %s in %d s: %s%s", strings.Join(keepers, ", "), Quiet/time.Second, quiet, stillShown))
	}
	return nil
}

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// reading is a task that reads so many bytes in steps.
func reading(s *turns, pid int, user uint32, bytes, step int, done func()) *task {
	return &task{of: subject{pid: pid}, user: user, first: true, do: func(t *task) time.Duration {
		for left := bytes; left > 0; left -= step {
			if s.spend(t, step) != nil {
				return 0
			}
		}
		done()
		return 0
	}}
}

func newTestTurns() *turns { return newTurns(func(uint32) {}) }

// The honest process beside 20 others of another user is done after at most twice the bytes that it needs alone, and a turn.
func TestTurnsGoRoundByUser(t *testing.T) {
	const bytes, step = 10 << 20, 64 << 10
	for _, hostile := range []int{0, 20} {
		s := newTestTurns()
		for i := range hostile {
			s.add(reading(s, 100+i, 1000, 1<<30, step, func() { t.Error("a hostile process is done first") }), true)
		}
		done := false
		s.add(reading(s, 1, 1001, bytes, step, func() { done = true }), false)
		for !done && s.turn() {
		}
		limit := int64(bytes + lookCost)
		if hostile > 0 {
			limit = 2*limit + turnBytes + step
		}
		if !done || s.read > limit || s.read < bytes {
			t.Errorf("beside %d: done %v after %d bytes, want at most %d", hostile, done, s.read, limit)
		}
		s.close()
	}
}

// Each process of a user has its turn, too.
func TestTurnsGoRoundByProcess(t *testing.T) {
	s := newTestTurns()
	done := false
	for i := range 20 {
		s.add(reading(s, 100+i, 1000, 1<<30, 64<<10, func() {}), false)
	}
	s.add(reading(s, 1, 1000, 10<<20, 64<<10, func() { done = true }), false)
	for !done && s.turn() {
	}
	if want := int64(21 * (10<<20 + turnBytes)); !done || s.read > want {
		t.Errorf("done %v after %d bytes, want at most %d", done, s.read, want)
	}
	s.close()
}

// Those that are urgent come first.
func TestTurnsUrgent(t *testing.T) {
	s := newTestTurns()
	var order []int
	for pid := range 4 {
		s.add(reading(s, pid, 1000, 1, 1, func() { order = append(order, pid) }), pid == 3)
	}
	for s.turn() {
	}
	if want := []int{3, 0, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}

// A user of whose processes too much was read waits; the others go on.
func TestPurse(t *testing.T) {
	s := newTestTurns()
	s.add(reading(s, 1, 1000, 2*userPurse, turnBytes, func() { t.Error("more was read than a purse has") }), false)
	done := false
	s.add(&task{of: subject{pid: 2}, user: 1001, first: true, due: time.Now().Add(time.Second), do: func(*task) time.Duration { done = true; return 0 }}, false)
	for s.turn() {
	}
	if s.read < userPurse || s.read > userPurse+userPurse/10 {
		t.Errorf("%d bytes were read, want about %d", s.read, userPurse)
	}
	if users, others := s.starving(); !slices.Equal(users, []uint32{1000}) || !others {
		t.Errorf("%v starve, and others wait: %v", users, others)
	}
	for !done || s.turn() {
		s.turn()
	}
	if users, others := s.starving(); !slices.Equal(users, []uint32{1000}) || others {
		t.Errorf("%v starve, and others wait: %v", users, others)
	}
	s.close()
}

// Root has no purse, and takes nothing from the others' one.
func TestRootHasNoPurse(t *testing.T) {
	s := newTestTurns()
	done := 0
	s.add(reading(s, 1, 0, 2*wholePurse, turnBytes, func() { done++ }), false)
	s.add(reading(s, 2, 1000, userPurse/2, turnBytes, func() { done++ }), false)
	for s.turn() {
	}
	if waiting := s.waiting(); done != 2 || len(waiting) != 0 {
		t.Errorf("%d are done, %v wait", done, waiting)
	}
	s.add(reading(s, 3, 1000, userPurse, turnBytes, func() { t.Error("more was read than a purse has") }), false)
	for s.turn() {
	}
	if waiting := s.waiting(); !slices.Equal(waiting, []uint32{1000}) {
		t.Errorf("%v wait", waiting)
	}
	s.close()
}

// The same is looked at once, however often it is asked for; once more if it was asked for while it was looked at; and again when it asks for that.
func TestTurnsRepeat(t *testing.T) {
	s := newTestTurns()
	runs, again := 0, time.Duration(0)
	looked := &task{of: subject{pid: 1}, user: 1000}
	looked.do = func(by *task) time.Duration {
		if runs++; runs == 1 {
			s.add(&task{of: subject{pid: 1}, user: 1000, do: looked.do}, false)
		}
		return again
	}
	for range 5 {
		s.add(&task{of: subject{pid: 1}, user: 1000, do: looked.do}, false)
	}
	for s.turn() {
	}
	if runs != 2 {
		t.Errorf("it ran %d times, want 2", runs)
	}
	again = time.Millisecond
	s.add(looked, false)
	for end := time.Now().Add(10 * time.Second); runs < 5 && time.Now().Before(end); s.turn() {
	}
	if at, more := s.due(); runs != 5 || !more || time.Until(at) > time.Second {
		t.Errorf("it ran %d times, and the next one is in %v", runs, time.Until(at))
	}
	s.close()
	if _, more := s.due(); more || s.turn() {
		t.Error("something is left after the end")
	}
}

// What a user makes faster than it is looked at is dropped, and reported; the rest is not.
func TestTurnsAreBounded(t *testing.T) {
	var crowded []uint32
	s := newTurns(func(user uint32) { crowded = append(crowded, user) })
	for i := range mostTasks + 3 {
		s.add(&task{of: subject{pid: 1, at: uint64(i)}, user: 1000, do: func(*task) time.Duration { return 0 }}, false)
	}
	s.add(&task{of: subject{pid: 2}, user: 1001, do: func(*task) time.Duration { return 0 }}, false)
	if !slices.Equal(crowded, []uint32{1000, 1000, 1000}) || len(s.known) != mostTasks+1 {
		t.Errorf("%v are crowded, and %d wait", crowded, len(s.known))
	}
}

// A task that is under way when the search ends is told so.
func TestTurnsClose(t *testing.T) {
	s := newTestTurns()
	var err error
	s.add(&task{of: subject{pid: 1}, user: 1000, do: func(by *task) time.Duration {
		for err == nil {
			err = s.spend(by, turnBytes)
		}
		return 0
	}}, false)
	s.turn()
	if s.close(); !errors.Is(err, errStopped) || err.Error() != "the search has ended" {
		t.Error(fmt.Sprint("it is told: ", err))
	}
}

// Tasks that are under way have so much memory, of a user and of all; the others begin later, and all are done in the end.
func TestTurnsHold(t *testing.T) {
	s := newTestTurns()
	done, most := 0, 0
	for user := range uint32(10) {
		for i := range 10 {
			s.add(&task{of: subject{pid: int(user)*100 + i}, user: user, do: func(t *task) time.Duration {
				s.hold(t, mostHeld/2)
				most = max(most, s.heldAll)
				if s.spend(t, 3*turnBytes) == nil {
					done++
				}
				return 0
			}}, false)
		}
	}
	for s.turn() {
	}
	if limit := mostHeldAll + 10*mostHeld/2; done != 100 || most > limit || most < mostHeld || s.heldAll != 0 || len(s.held) != 0 {
		t.Errorf("%d are done; at most %d bytes were held, want at most %d; %d are still held", done, most, limit, s.heldAll)
	}
}

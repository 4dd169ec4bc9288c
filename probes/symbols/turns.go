package symbols

import (
	"context"
	"sync"
	"time"
)

// turns are pieces of work for users, done one after the other: next is always a piece for the user for whom the least time was spent. So a user who
// makes work for hours keeps another one waiting for one piece of it.
type turns struct {
	// share is which part of the time may be spent in all; 1: all of it. Half of it may be for one user.
	share float64

	mu     sync.Mutex
	more   *sync.Cond
	queues map[uint32][]work
	length int
	spent  map[uint32]*meter
	all    meter
	ended  bool
	total  time.Duration
}

// work is a piece of work, which is left out once ctx has ended.
type work struct {
	ctx context.Context
	do  func()
}

// meter is time that was spent lately. It falls as time goes by.
type meter struct {
	spent time.Duration
	at    time.Time
}

// level returns what is left of it; of falls by a part of the time.
func (m *meter) level(now time.Time, share float64) time.Duration {
	m.spent, m.at = max(0, m.spent-time.Duration(share*float64(now.Sub(m.at)))), now
	return m.spent
}

// Limits of work that waits, and of the time that may be spent before the share counts.
const (
	maxWaiting    = 8192
	maxWaitingOne = 1024
	burst         = 10 * time.Second
	maxMeters     = 4096
)

func newTurns(share float64) *turns {
	t := &turns{share: share, queues: map[uint32][]work{}, spent: map[uint32]*meter{}}
	t.more = sync.NewCond(&t.mu)
	return t
}

// add adds a piece of work, unless there is too much of it. ctx may be nil.
func (t *turns) add(user uint32, ctx context.Context, do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.length >= maxWaiting || len(t.queues[user]) >= maxWaitingOne {
		return false
	}
	t.queues[user] = append(t.queues[user], work{ctx, do})
	t.length++
	t.more.Signal()
	return true
}

// end ends the work: what waits is not done.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.more.Broadcast()
}

// run does the work until the end.
func (t *turns) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.ended {
		user, w, ok := t.next(time.Now())
		if !ok {
			if t.length > 0 { // there is no time for it now
				time.AfterFunc(burst/100, t.more.Signal)
			}
			t.more.Wait()
			continue
		}
		t.mu.Unlock()
		began := time.Now()
		w.do()
		took := time.Since(began)
		t.mu.Lock()
		t.count(user, took)
	}
}

func (t *turns) count(user uint32, took time.Duration) {
	now := time.Now()
	m := t.meter(user, now)
	m.spent += took
	t.all.level(now, t.share)
	t.all.spent += took
	t.total += took
}

// meter returns the time of a user.
func (t *turns) meter(user uint32, now time.Time) *meter {
	m := t.spent[user]
	if m == nil {
		if len(t.spent) >= maxMeters {
			for u, m := range t.spent {
				if m.level(now, t.share/2) == 0 {
					delete(t.spent, u)
				}
			}
		}
		m = &meter{at: now}
		t.spent[user] = m
	}
	m.level(now, t.share/2)
	return m
}

// next takes the next piece of work, if there is time for one.
func (t *turns) next(now time.Time) (user uint32, w work, ok bool) {
	if t.share < 1 && t.all.level(now, t.share) >= burst {
		return 0, w, false
	}
	least := time.Duration(1<<63 - 1)
	for u, q := range t.queues {
		for len(q) > 0 && q[0].ctx != nil && q[0].ctx.Err() != nil {
			q, t.length = q[1:], t.length-1
		}
		if t.queues[u] = q; len(q) == 0 {
			delete(t.queues, u)
			continue
		}
		if level := t.meter(u, now).spent; level < least && (t.share >= 1 || level < burst/2) {
			user, least, ok = u, level, true
		}
	}
	if ok {
		w = t.queues[user][0]
		t.queues[user], t.length = t.queues[user][1:], t.length-1
	}
	return user, w, ok
}

// seconds returns how long the work took in all.
func (t *turns) seconds() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total.Seconds()
}

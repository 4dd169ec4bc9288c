package exec

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// searching calls a search for names of a user's process with the context that ends it.
type searching func(user uint32, look func(context.Context) bool)

// patience is how long a run waits for names of functions. While it waits, no event is counted and no map is read.
type patience struct {
	// run is the context of the run; interrupted ends when the user interrupts it, also while the last names are looked up; unnamed ends
	// when nobody waits for them.
	run, interrupted, unnamed context.Context
	// hurry means that nobody waits for names: names may take a small part of the time.
	hurry bool
	// given counts the searches that were given up.
	given atomic.Uint64

	mu sync.Mutex
	// left is the time for names after the end of the run, or now if there is a hurry. parts are what users have of it: half of what was left
	// when the first name of theirs was looked up. So nobody takes all of it with files that take long, but root.
	left  time.Duration
	parts map[uint32]time.Duration
	// at is when left was counted. ended means that names are looked up after the end of the run, and alone that it ended by itself.
	at           time.Time
	ended, alone bool
}

// namingPatience is the time for names after the end of a run, because the last stacks need theirs. The symbols of a large program take a second.
const namingPatience = 30 * time.Second

// In a hurry names take at most a tenth of the time, and so much of it in one piece.
const (
	hurriedPart  = 10
	hurriedPiece = 200 * time.Millisecond
)

// newPatience returns the patience of a run. interrupted may be nil.
func newPatience(run, interrupted, unnamed context.Context, hurry bool) *patience {
	p := &patience{run: run, interrupted: interrupted, unnamed: unnamed, hurry: hurry, left: namingPatience, parts: map[uint32]time.Duration{}, at: time.Now()}
	if p.interrupted == nil {
		p.interrupted = run
	}
	if p.hurry {
		p.left = hurriedPiece
	}
	return p
}

// search calls look with a context that ends when there is no more time for names. look reports whether it found all.
func (p *patience) search(user uint32, look func(context.Context) bool) {
	ctx, done := p.begin(user)
	if !look(ctx) {
		p.given.Add(1)
	}
	done()
}

// asked returns the search for a caller who waits for names while the run goes on.
func (p *patience) asked() searching {
	if !p.hurry {
		return p.search
	}
	deadline := time.Now().Add(namingPatience)
	return func(_ uint32, look func(context.Context) bool) {
		ctx, done := context.WithDeadline(context.Background(), deadline)
		defer done()
		look(ctx)
	}
}

// begin returns the context of a search, and a function to call when the search is done.
func (p *patience) begin(user uint32) (context.Context, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	if p.hurry {
		p.left, p.at = min(hurriedPiece, p.left+began.Sub(p.at)/hurriedPart), began
		ctx, cancel := context.WithTimeout(context.Background(), p.left)
		return ctx, func() { cancel(); p.spend(user, time.Since(began)) }
	}
	if p.run.Err() == nil {
		ctx, cancel := context.WithCancel(p.unnamed)
		left := p.left
		stop := context.AfterFunc(p.run, func() { time.AfterFunc(left, cancel) })
		return ctx, func() { stop(); cancel() }
	}
	if !p.ended {
		p.ended, p.alone = true, p.interrupted.Err() == nil
	}
	ctx, cancel := context.WithTimeout(p.unnamed, p.part(user))
	stop := func() bool { return true }
	if p.alone { // an interrupt is about the names
		stop = context.AfterFunc(p.interrupted, cancel)
	}
	return ctx, func() { stop(); cancel(); p.spend(user, time.Since(began)) }
}

// part returns the time that is left for a user.
func (p *patience) part(user uint32) time.Duration {
	if user == 0 {
		return p.left
	}
	if _, known := p.parts[user]; !known {
		p.parts[user] = p.left / 2
	}
	return min(p.parts[user], p.left)
}

func (p *patience) spend(user uint32, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left -= took
	if left, known := p.parts[user]; known {
		p.parts[user] = left - took
	}
}

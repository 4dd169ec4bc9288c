//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// correction is the state of Session.Correct.
type correction struct {
	mu sync.Mutex
	// on from the first walk until the programs are detached.
	on bool
	// last is when the last comparison ended, and took how long it took.
	last time.Time
	took time.Duration
	// failed says that it was said that a comparison has failed.
	failed bool
}

// Comparisons take one part of that many of the time: where something points to a difference, and where one is left that is known.
const (
	correctionShare = 20
	acceptedShare   = 200
)

// lastCorrection is how long the comparison at the end may take.
const lastCorrection = time.Second

// Correct compares the objects that were told to be there with the kernel's own list, and tells what differs, as events: the kernel may
// have skipped a program. Where nothing points to a difference, it only asks how many objects there are.
func (s *Session) Correct(ctx context.Context) {
	c := &s.correction
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on && time.Since(c.last) >= correctionShare*c.took {
		s.correct(ctx, func(inv *inventory) bool { return inv.suspicious(ctx) })
	}
}

// correctLast is Correct for the last time, whatever there is that points to a difference.
func (s *Session) correctLast() {
	c := &s.correction
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on {
		ctx, cancel := context.WithTimeout(context.Background(), lastCorrection)
		defer cancel()
		s.correct(ctx, func(*inventory) bool { return true })
	}
	c.on = false
}

func (s *Session) correct(ctx context.Context, needed func(*inventory) bool) {
	c := &s.correction
	began := time.Now()
	for _, all := range s.inventoriesByProbe() {
		if !slices.ContainsFunc(all, needed) {
			continue
		}
		// It may be that a device has just gone; the next comparison tells.
		if err := compare(ctx, all); err != nil && !errors.Is(ctx.Err(), context.Canceled) && !c.failed {
			s.note(all[0].Probe, fmt.Sprintf("what the kernel has skipped may not be corrected: %v", err))
			c.failed = true
		}
	}
	for _, inv := range s.inventories {
		if inv.overflown() {
			s.note(inv.Probe, fmt.Sprintf("there are more than %d objects: what the kernel skips is not corrected any more", inv.known.MaxEntries()))
		}
	}
	c.last = time.Now()
	c.took = c.last.Sub(began)
}

// inventoriesByProbe groups the inventories: one walk suffices for all requests for a probe.
func (s *Session) inventoriesByProbe() (groups [][]*inventory) {
	for _, inv := range s.inventories {
		i := slices.IndexFunc(groups, func(all []*inventory) bool { return all[0].Probe == inv.Probe })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], inv)
	}
	return groups
}

// Objects come and go while they are counted, so numbers have to differ more than once.
const (
	countings     = 3
	betweenCounts = time.Millisecond
)

// suspicious tells whether something points to a difference between what was told and what there is.
func (inv *inventory) suspicious(ctx context.Context) bool {
	if t, err := inv.tally(); err != nil || t.full != 0 || inv.blind {
		return false
	} else if uint64(t.corrected) != inv.corrected || inv.misses() != inv.skipped {
		return true
	}
	for range countings {
		if maps.Equal(inv.surplus(ctx), inv.accepted) {
			return len(inv.accepted) > 0 && time.Since(inv.compared) > acceptedShare*inv.took
		}
		time.Sleep(betweenCounts)
	}
	return true
}

// surplus is how many more objects were told to be there than the kernel counts, by class.
func (inv *inventory) surplus(ctx context.Context) map[class]int {
	surplus := make(map[class]int)
	counts, err := inv.source.hook.seed.counts(ctx)
	if err != nil {
		return inv.accepted
	}
	t, err := inv.tally()
	if err != nil {
		return inv.accepted
	}
	for c, n := range counts {
		if t.told[c] != n {
			surplus[c] = t.told[c] - n
		}
	}
	return surplus
}

// maxWalks is how often a comparison sends the kernel over its objects. Two suffice if nothing comes or goes; what is left then is found
// by the next comparison.
const maxWalks = 4

// compare finds what differs, for requests for the same probe.
func compare(ctx context.Context, all []*inventory) (err error) {
	began := time.Now()
	all = slices.DeleteFunc(slices.Clone(all), func(inv *inventory) bool {
		t, err := inv.tally()
		inv.corrected, inv.skipped, inv.unmet = uint64(t.corrected), inv.misses(), nil
		return err != nil || t.full != 0 || inv.blind
	})
	if len(all) == 0 {
		return nil
	}
	defer func() {
		for _, inv := range all {
			if e := inv.set(watching, inv.number, inv.partial); err == nil {
				err = e
			}
			if t, e := inv.tally(); e == nil {
				inv.corrected = uint64(t.corrected)
			}
			inv.accepted, inv.compared, inv.took = inv.surplus(ctx), time.Now(), time.Since(began)
		}
	}()
	step := uint32(2) // what the last comparison has met is not of the walk before
	for range maxWalks {
		settled, err := compareOnce(ctx, all, step)
		if err != nil || settled {
			return err
		}
		step = 1
	}
	return nil
}

func compareOnce(ctx context.Context, all []*inventory, step uint32) (settled bool, err error) {
	unsure := make([]uint32, len(all))
	for i, inv := range all {
		if unsure[i], err = inv.begin(step); err != nil {
			return false, err
		}
	}
	w, err := all[0].walk(ctx)
	if err != nil {
		return false, err
	}
	counts, err := all[0].source.hook.seed.counts(ctx)
	if err != nil {
		return false, err
	}
	settled = true
	for i, inv := range all {
		ok, err := inv.settle(w, counts, unsure[i])
		if err != nil {
			return false, err
		}
		settled = settled && ok
	}
	return settled, nil
}

// overflown tells, once, whether there is no room to know all objects.
func (inv *inventory) overflown() bool {
	t, err := inv.tally()
	if err != nil || t.full == 0 || inv.full {
		return false
	}
	inv.full = true
	return true
}

// countCorrected adds to what is missing from the events how many were corrected.
func (s *Session) countCorrected(all []Losses) error {
	for _, inv := range s.inventories {
		t, err := inv.tally()
		if err != nil {
			return fmt.Errorf("counts of %s: %w", inv.Probe, err)
		}
		i := slices.IndexFunc(all, func(l Losses) bool { return l.Probe == inv.Probe })
		all[i].Corrected += uint64(t.corrected)
	}
	return nil
}

//go:build linux

package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// correction keeps what was told of objects in step with the kernel's own list.
type correction struct {
	notes *notes

	mu sync.Mutex
	// inventories that were walked for the first time, and are still attached.
	inventories []*inventory
	// last is when the last comparison ended, and took how long it took.
	last time.Time
	took time.Duration
	// failed says that it was said that a comparison has failed.
	failed bool
}

// correctionShare: where something points to a difference, comparisons take one part of that many of the time.
const correctionShare = 20

// lastCorrection is how long the comparison at the end may take.
const lastCorrection = time.Second

// begin tells of what was there before some requests were attached, and keeps their inventories. That what cannot be told is no failure
// of the session, but is said.
func (c *correction) begin(ctx context.Context, inventories []*inventory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.seed(ctx, inventories); err != nil {
		return err
	}
	c.inventories = slices.Concat(c.inventories, inventories)
	return nil
}

func (c *correction) seed(ctx context.Context, inventories []*inventory) error {
	for _, inv := range inventories {
		if err := inv.set(seeding, 1, false); err != nil {
			return fmt.Errorf("%s: %w", inv.Probe, err)
		}
	}
	for _, all := range byProbe(inventories) {
		w, err := all[0].walk(ctx)
		if err != nil && ctx.Err() == nil {
			w.notes = append(w.notes, fmt.Sprintf("what was there before is not all counted: %v", err))
		}
		for _, note := range w.notes {
			c.notes.add(all[0].Probe, note)
		}
		for _, inv := range all {
			// One that was left out is told to come when it goes: else it would go without having come.
			if err := inv.set(watching, 1, len(w.notes) > 0 || inv.blind); err != nil {
				return fmt.Errorf("%s: %w", inv.Probe, err)
			}
			inv.accepted = inv.surplus(ctx)
		}
	}
	return ctx.Err()
}

// correct compares the objects that were told to be there with the kernel's own list, and tells what differs, as events: the kernel may
// have skipped a program. Where nothing points to a difference, it only asks how many objects there are.
func (c *correction) correct(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) >= correctionShare*c.took {
		c.compare(ctx, func(inv *inventory) bool { return inv.suspicious(ctx) })
	}
}

// end compares for the last time, whatever there is that points to a difference, and forgets the inventories.
func (c *correction) end(inventories []*inventory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isOne := func(inv *inventory) bool { return slices.Contains(inventories, inv) }
	ctx, cancel := context.WithTimeout(context.Background(), lastCorrection)
	defer cancel()
	c.compare(ctx, isOne)
	c.inventories = slices.DeleteFunc(c.inventories, isOne)
}

func (c *correction) compare(ctx context.Context, needed func(*inventory) bool) {
	began := time.Now()
	for _, all := range byProbe(c.inventories) {
		if !slices.ContainsFunc(all, needed) {
			continue
		}
		// It may be that a device has just gone; the next comparison tells.
		if err := compare(ctx, all); err != nil && !errors.Is(ctx.Err(), context.Canceled) && !c.failed {
			c.notes.add(all[0].Probe, fmt.Sprintf("what the kernel has skipped may not be corrected: %v", err))
			c.failed = true
		}
	}
	for _, inv := range c.inventories {
		if inv.overflown() {
			c.notes.add(inv.Probe, fmt.Sprintf("there are more than %d objects: what the kernel skips is not corrected any more", inv.known.MaxEntries()))
		}
	}
	c.last = time.Now()
	c.took = c.last.Sub(began)
}

// byProbe groups inventories: one walk suffices for all requests for a probe.
func byProbe(inventories []*inventory) (groups [][]*inventory) {
	for _, inv := range inventories {
		i := slices.IndexFunc(groups, func(all []*inventory) bool { return all[0].Probe == inv.Probe })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], inv)
	}
	return groups
}

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

// correction keeps the reported objects in step with the kernel's own list.
type correction struct {
	notes *notes

	mu sync.Mutex
	// inventories whose first walk is done, and that are still attached.
	inventories []*inventory
	// last is when the last comparison ended, and took how long it took.
	last time.Time
	took time.Duration
	// failed means that a failed comparison was noted.
	failed bool
}

// correctionShare: if something points to a difference, comparisons take one part in that many of the time.
const correctionShare = 20

// lastCorrection is how long the comparison at the end may take.
const lastCorrection = time.Second

// begin reports the objects from before some requests were attached, and keeps their inventories. If it cannot report them, that is a note
// and no failure of the session.
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
			w.notes = append(w.notes, fmt.Sprintf("not all objects from before are counted: %v", err))
		}
		for _, note := range w.notes {
			c.notes.add(all[0].Probe, note)
		}
		for _, inv := range all {
			// An object that was left out is reported to come when it goes: otherwise it would go without having come.
			if err := inv.set(watching, 1, len(w.notes) > 0 || inv.blind); err != nil {
				return fmt.Errorf("%s: %w", inv.Probe, err)
			}
			inv.accepted = inv.surplus(ctx)
		}
	}
	return ctx.Err()
}

// correct compares the reported objects with the kernel's own list, and reports differences as events: the kernel may have skipped a
// program. If nothing points to a difference, it only asks for the number of objects.
func (c *correction) correct(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) >= correctionShare*c.took {
		c.compare(ctx, func(inv *inventory) bool { return inv.suspicious(ctx) })
	}
}

// end compares for the last time, in any case, and forgets the inventories.
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
		// A device may just have gone; the next comparison shows it.
		if err := compare(ctx, all); err != nil && !errors.Is(ctx.Err(), context.Canceled) && !c.failed {
			c.notes.add(all[0].Probe, fmt.Sprintf("events that the kernel skipped may not be corrected: %v", err))
			c.failed = true
		}
	}
	for _, inv := range c.inventories {
		if inv.overflown() {
			c.notes.add(inv.Probe, fmt.Sprintf("there are more than %d objects: events that the kernel skips are no longer corrected", inv.known.MaxEntries()))
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

//go:build linux

package probes

import (
	"context"
	"maps"
	"slices"
	"time"
)

// acceptedShare: if a comparison left a difference that is known, comparisons take one part in that many of the time.
const acceptedShare = 200

// Objects come and go while they are counted, so numbers must differ more than once.
const (
	countings     = 3
	betweenCounts = time.Millisecond
)

// suspicious reports whether something points to a difference between the reported and the existing objects.
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

// surplus returns how many more objects were reported than the kernel counts, by class.
func (inv *inventory) surplus(ctx context.Context) map[class]int {
	surplus := make(map[class]int)
	counts, err := inv.origin.hook.seed.counts(ctx)
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

// maxWalks is how often a comparison makes the kernel walk over its objects. Two walks suffice if nothing comes or goes; the next
// comparison finds what is left then.
const maxWalks = 4

// compare finds and reports differences, for requests for the same probe.
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
	step := uint32(2) // what the last comparison met does not count as the walk before
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
	counts, err := all[0].origin.hook.seed.counts(ctx)
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

// overflown reports, once, that there is no room to know all objects.
func (inv *inventory) overflown() bool {
	t, err := inv.tally()
	if err != nil || t.full == 0 || inv.full {
		return false
	}
	inv.full = true
	return true
}

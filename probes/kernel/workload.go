//go:build linux

package kernel

import (
	"context"
	"slices"
	"time"

	"trace/probes/event"
)

// named is a workload, as it was found.
type named struct {
	event.Workload
	// settled reports that nothing will be added to it.
	settled bool
	// first is when it was first looked for, and last when last.
	first, last time.Time
}

// Names of a container that has just been made may come later: its runtime writes them, or the kubelet. They are looked for again, more and
// more seldom, and not for ever.
const (
	soonest  = 100 * time.Millisecond
	patience = 30 * time.Second
)

// due reports whether names may have come since the last look.
func (n *named) due(now time.Time) bool {
	age := now.Sub(n.first)
	return !n.settled && age < patience && now.Sub(n.last) >= max(soonest, age/4)
}

// Workload returns what the cgroup with an id runs, or ran when it was last seen.
func (c *Cgroups) Workload(id uint64) event.Workload {
	c.naming.Lock()
	defer c.naming.Unlock()
	now := time.Now()
	n := c.workloads[id]
	if n != nil && !n.due(now) {
		return n.Workload
	}
	path := c.Path(id)
	if n == nil {
		if path == "" { // it may be seen later
			return event.Workload{}
		}
		if len(c.workloads) >= maxCgroups {
			clear(c.workloads)
		}
		n = &named{first: now}
		c.workloads[id] = n
	}
	n.last = now
	n.Workload, n.settled = c.host.Workload(path)
	return n.Workload
}

// Follow calls named with the id of each cgroup that is made from then on, while [Cgroups.Watch] runs, until forget is called. It calls it
// again when names of the workload may have come.
func (c *Cgroups) Follow(named func(id uint64)) (forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers = append(slices.Clone(c.followers), &named)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.followers = slices.DeleteFunc(slices.Clone(c.followers), func(f *func(uint64)) bool { return f == &named })
	}
}

// report calls the followers.
func (c *Cgroups) report(id uint64) {
	c.mu.Lock()
	followers := c.followers
	c.mu.Unlock()
	for _, named := range followers {
		(*named)(id)
	}
}

// lookAgain looks for names that may have come, until ctx ends.
func (c *Cgroups) lookAgain(ctx context.Context) {
	tick := time.NewTicker(soonest)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, id := range c.due(now) {
				c.report(id)
			}
		}
	}
}

// due returns the cgroups whose names may have come.
func (c *Cgroups) due(now time.Time) (ids []uint64) {
	c.naming.Lock()
	defer c.naming.Unlock()
	for id, n := range c.workloads {
		if n.due(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

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

// awaited reports whether names may still come.
func (n *named) awaited(now time.Time) bool { return !n.settled && now.Sub(n.first) < patience }

// due reports whether names may have come since the last look.
func (n *named) due(now time.Time) bool {
	return n.awaited(now) && now.Sub(n.last) >= max(soonest, now.Sub(n.first)/4)
}

// maxWorkloads bounds how many names are kept, each of some hundred bytes.
const maxWorkloads = 1 << 15

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
		if len(c.workloads) >= maxWorkloads {
			clear(c.workloads)
		}
		n = &named{first: now}
		c.workloads[id] = n
	}
	n.last = now
	n.Workload, n.settled = c.host.Workload(path)
	if n.awaited(now) {
		c.await()
	}
	return n.Workload
}

// await makes that names are looked for again.
func (c *Cgroups) await() {
	select {
	case c.awaited <- struct{}{}:
	default:
	}
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

// lookAgain looks for names that may have come, as long as there are such, until ctx ends.
func (c *Cgroups) lookAgain(ctx context.Context) {
	defer c.await() // another run may wait for the same names
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.awaited:
		}
		for more := true; more; {
			select {
			case <-ctx.Done():
				return
			case now := <-time.After(soonest):
				var ids []uint64
				ids, more = c.due(now)
				for _, id := range ids {
					c.report(id)
				}
			}
		}
	}
}

// due returns the cgroups whose names may have come, and whether more may come later.
func (c *Cgroups) due(now time.Time) (ids []uint64, more bool) {
	c.naming.Lock()
	defer c.naming.Unlock()
	for id, n := range c.workloads {
		if n.due(now) {
			ids = append(ids, id)
		}
		more = more || n.awaited(now)
	}
	return ids, more
}

//go:build linux

package probes

import (
	"fmt"
	"slices"
	"time"
)

// clocks returns what samples for the request.
func (r *request) clocks() (all []*clocks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attached {
		for _, l := range a.links {
			if c, ok := l.(*clocks); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// samples reports whether a request of the batch samples CPUs.
func (b *batch) samples() bool {
	return slices.ContainsFunc(b.requests, func(r *request) bool { return len(r.clocks()) > 0 })
}

// sampleAgain samples a CPU that came online at a time.
func sampleAgain(batches []*batch, cpu int, came time.Time, n *notes) {
	for _, b := range batches {
		for _, r := range b.requests {
			for _, c := range r.clocks() {
				r.gap()
				if err := c.online(cpu); err != nil {
					n.add(r.Probe, fmt.Sprintf("CPU %d came online at %s, but is not sampled: %v", cpu, clockTime(came), err))
				} else {
					n.add(r.Probe, fmt.Sprintf("CPU %d came online: not sampled from %s to %s", cpu, clockTime(came), clockTime(time.Now())))
				}
			}
		}
	}
}

//go:build linux

package run

import (
	"context"

	"trace/probes"
)

// rest is what a run goes on without.
type rest struct {
	live    *Live
	session *probes.Session
}

func (r rest) all() (left []Unavailable) {
	for _, err := range r.session.Skipped() {
		for _, p := range err.Probes {
			left = append(left, Unavailable{p.String(), err.Of(p)})
		}
	}
	return left
}

func (r rest) attach(ctx context.Context) error {
	defer func() { go returnMemory() }()
	return r.live.permitted(r.session.Retry(ctx))
}

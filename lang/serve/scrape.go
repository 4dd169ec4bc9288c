//go:build linux

package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"trace/lang/metrics/family"
)

// scrapeTime is how long a scrape waits for the maps of a program: less than the web process waits for all of them.
const scrapeTime = 5 * time.Second

// families returns the metrics of all programs and of the service. The programs are read at once: a scraper waits. One that cannot be read in time
// is left out, counted and logged: the others are shown.
func (s *Service) families(ctx context.Context) family.Set {
	programs, about := s.now()
	all := make([][]family.Family, len(programs)+1)
	var reading sync.WaitGroup
	for i, p := range programs {
		reading.Go(func() {
			var err error
			if all[i+1], err = p.active().families(ctx, scrapeTime); err != nil {
				p.failed.Add(1)
				p.log.Error("a scrape is without its metrics: " + err.Error())
			}
		})
	}
	reading.Wait()
	all[0] = about.families(s.options.Version, programs, s.names())
	return family.Join(all...)
}

// families returns the metrics of the program; if it is not attached, these are its probes alone, and /-/ready has why. Scrapes at the same time share
// what one of them reads, so that a program whose maps take long is read once at a time.
func (p *program) families(ctx context.Context, within time.Duration) ([]family.Family, error) {
	run, err := p.running()
	if err != nil {
		return p.exporter.Unattached(p.compiled.Probes()), nil
	}
	read := p.reading.DoChan("", func() (any, error) { return p.exporter.Read(func() (family.Snapshot, error) { return snapshot(run) }) })
	select {
	case r := <-read:
		if r.Err != nil {
			return nil, fmt.Errorf("its maps: %w", r.Err)
		}
		return r.Val.([]family.Family), nil
	case <-time.After(within):
		return nil, fmt.Errorf("its maps are not read after %v", within)
	case <-ctx.Done():
		return nil, fmt.Errorf("its maps are not read: %w", context.Cause(ctx))
	}
}

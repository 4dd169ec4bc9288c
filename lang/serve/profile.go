//go:build linux

package serve

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"trace/lang/output"
	"trace/lang/result"
)

// maxProfile is the longest profile.
const maxProfile = 5 * time.Minute

// maxNaming is how long the names of a profile may take: a function that is not found until then has the name of its file.
const maxNaming = 5 * time.Second

// profile returns what the stacks of a program count in the next time, in pprof's form.
func (s *Service) profile(ctx context.Context, name string, long time.Duration) ([]byte, error) {
	programs, _ := s.now()
	i := slices.IndexFunc(programs, func(p *program) bool { return p.spec.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no program %q in the configuration", name)
	}
	if long <= 0 || long > maxProfile {
		return nil, fmt.Errorf("a profile takes from 1 to %d seconds", int(maxProfile.Seconds()))
	}
	run, err := programs[i].active().running()
	if err != nil {
		return nil, fmt.Errorf("program %s is not attached: %w", name, err)
	}
	began := time.Now()
	before, err := run.Counted()
	if err != nil {
		return nil, err
	}
	if len(before) == 0 {
		return nil, fmt.Errorf("program %s has no map with a stack: write one like @[kstack] = count()", name)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(long):
	}
	after, err := run.Counted()
	if err != nil {
		return nil, err
	}
	ended, gained := time.Now(), since(before, after)
	naming, done := context.WithTimeout(ctx, maxNaming)
	defer done()
	if err := run.Name(naming, gained); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = output.WritePprof(&out, began, ended, gained)
	return out.Bytes(), err
}

// since returns what profiles have gained, before anything has a name: names may be found between two profiles. A map that was emptied meanwhile has gained what it has.
func since(before, after []result.Profile) []result.Profile {
	had := map[string]uint64{}
	for _, p := range before {
		for _, s := range p.Samples {
			had[sampleKey(p, s)] += s.Value
		}
	}
	for i, p := range after {
		gained := p.Samples[:0]
		for _, s := range p.Samples {
			if n := had[sampleKey(p, s)]; s.Value >= n {
				s.Value -= n
			}
			if s.Value > 0 {
				gained = append(gained, s)
			}
		}
		after[i].Samples = gained
	}
	return after
}

func sampleKey(p result.Profile, s result.Sample) string {
	return fmt.Sprintf("%s %q %x", p.Map, s.Key, s.Stacks)
}

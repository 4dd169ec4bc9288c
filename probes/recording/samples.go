package recording

import (
	"slices"
	"time"
)

// SampleRates returns the different sample rates of the files, per second and CPU. It is nil if a file has samples but no rate.
func (r *Recording) SampleRates() []int {
	var rates []int
	for _, f := range r.files {
		sampled := slices.ContainsFunc(f.header.Records, func(d recordDesc) bool { return d.Group == "profile" })
		switch rate := f.header.SampleRate; {
		case !sampled:
		case rate == 0:
			return nil
		case !slices.Contains(rates, rate):
			rates = append(rates, rate)
		}
	}
	return rates
}

// Periods returns the different periods of readings in the files, by probe.
func (r *Recording) Periods() map[string][]time.Duration {
	periods := make(map[string][]time.Duration)
	for _, f := range r.files {
		for probe, period := range f.header.Periods {
			if !slices.Contains(periods[probe], period) {
				periods[probe] = append(periods[probe], period)
			}
		}
	}
	return periods
}

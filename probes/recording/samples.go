package recording

import "slices"

// SampleRates are those at which the CPUs were sampled, a second, each once. It is nil if a file has samples and does not say how
// often they were taken.
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

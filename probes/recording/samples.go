package recording

import "slices"

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

package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"trace/lang/metrics/family"
)

// Gatherer returns a gatherer of the families that get returns at each scrape. An error of get is the error of the scrape. The result is what a
// registry would make of them, in a fraction of the time: names and texts are valid, as package family makes them. Families that cannot be shown
// together are left out, and the error names them: the others are shown.
func Gatherer(get func() ([]family.Family, error)) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := get()
		if err != nil {
			return nil, err
		}
		return gather(all)
	})
}

// gather returns families by name, with their series by labels. Those with the same name become one.
func gather(all []family.Family) (sorted []*dto.MetricFamily, err error) {
	named := map[string]*dto.MetricFamily{}
	names := family.Names[string]{}
	wrong := map[string]error{}
	for i := range all {
		f := &all[i]
		if len(f.Series) == 0 {
			continue
		}
		to := named[f.Name]
		switch {
		case to == nil:
			to = &dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: kinds[f.Kind].Enum()}
			named[f.Name], sorted = to, append(sorted, to)
			if name, other, clash := names.Take(*f, f.Name); clash {
				wrong[f.Name] = fmt.Errorf("%s and %s would both have the name %s: give one of them another name", other, f.Name, name)
			}
		case *to.Type != kinds[f.Kind]:
			wrong[f.Name] = fmt.Errorf("%s is the name of a %s and of a %s: give one of them another name", f.Name, strings.ToLower(to.Type.String()), f.Kind)
		}
		to.Metric = append(to.Metric, metricsOf(f)...)
	}
	slices.SortFunc(sorted, func(a, b *dto.MetricFamily) int { return strings.Compare(*a.Name, *b.Name) })
	var errs []error
	sorted = slices.DeleteFunc(sorted, func(f *dto.MetricFamily) bool {
		err := cmp.Or(wrong[*f.Name], sortSeries(f))
		if err != nil {
			errs = append(errs, err)
		}
		return err != nil
	})
	return sorted, errors.Join(errs...)
}

// sortSeries sorts the series of a family. Two of them may not have the same labels.
func sortSeries(f *dto.MetricFamily) error {
	slices.SortFunc(f.Metric, compare)
	for i := range f.Metric[1:] {
		if compare(f.Metric[i], f.Metric[i+1]) == 0 {
			return fmt.Errorf("%s has two series with the labels %s: give one of them another name", *f.Name, labelsOf(f.Metric[i]))
		}
	}
	return nil
}

func labelsOf(m *dto.Metric) string {
	var all []string
	for _, l := range m.Label {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(all, " ")
}

// kinds are the names of client_golang for ours.
var kinds = map[family.Kind]dto.MetricType{
	family.Counter: dto.MetricType_COUNTER, family.Gauge: dto.MetricType_GAUGE, family.Summary: dto.MetricType_SUMMARY, family.Distribution: dto.MetricType_HISTOGRAM,
}

// compare orders series by how many labels they have, by their values, and by their names.
func compare(a, b *dto.Metric) int {
	if c := cmp.Compare(len(a.Label), len(b.Label)); c != 0 {
		return c
	}
	for i, l := range a.Label {
		if c := strings.Compare(*l.Value, *b.Label[i].Value); c != 0 {
			return c
		}
	}
	return slices.CompareFunc(a.Label, b.Label, func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
}

// metricsOf returns the series of a family. They share few pieces of memory: ten thousand small ones would take longer than all that is done with them.
func metricsOf(f *family.Family) []*dto.Metric {
	byName := f.ByName()
	metrics := make([]dto.Metric, len(f.Series))
	pairs := make([]dto.LabelPair, len(f.Series)*len(f.Labels))
	all := make([]*dto.Metric, len(metrics))
	labels := make([]*dto.LabelPair, len(pairs))
	created := createdAt(f.Series[0].Created)
	for i := range f.Series {
		s, m := &f.Series[i], &metrics[i]
		for k, at := range byName {
			pairs[k].Name, pairs[k].Value, labels[k] = &f.Labels[at], &s.Labels[at], &pairs[k]
		}
		n := len(byName)
		m.Label, labels, pairs = labels[:n:n], labels[n:], pairs[n:]
		if i > 0 && !s.Created.Equal(f.Series[i-1].Created) {
			created = createdAt(s.Created)
		}
		setValue(m, f.Kind, s, created)
		all[i] = m
	}
	return all
}

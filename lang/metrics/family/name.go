package family

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// describe returns the family of a table, without series, or why the map cannot be a metric and what to do.
func (c *Config) describe(t result.Table) (Family, error) {
	if err := refusal(t); err != nil {
		return Family{}, err
	}
	f := Family{Kind: kindOf(t.Metric), Unit: unitOf(t)}
	name := strings.TrimPrefix(t.Name, "@")
	given := c.Maps[name]
	words := []string{"trace", cmp.Or(given.Metric, c.Program)}
	if given.Metric == "" && name != "" {
		words = append(words, name)
	}
	if f.Unit != "" && !strings.HasSuffix(words[len(words)-1], f.Unit) {
		words = append(words, f.Unit)
	}
	if f.Kind == Counter {
		words = append(words, "total")
	}
	f.Name = clean(strings.Join(words, "_"))
	f.Help = cmp.Or(given.Help, fmt.Sprintf("Map %s of the program %s: %s.", t.Name, c.Program, cmp.Or(t.Func, "assigned values")))
	for i, column := range t.Key {
		if column.Name == "" {
			return f, fmt.Errorf("%s: element %d of its key has no name, which its label needs: write @%s[name = …]", t.Name, i+1, name)
		}
		f.Labels = append(f.Labels, label(column.Name))
	}
	f.Labels = append(f.Labels, c.labelNames()...)
	for i, l := range f.Labels {
		if slices.Contains(f.Labels[:i], l) {
			return f, fmt.Errorf("%s: two of its labels would be %s: give the elements of its key other names, @%s[name = …]", t.Name, l, name)
		}
	}
	return f, nil
}

// refusal returns why a map cannot be a metric, and what to do.
func refusal(t result.Table) error {
	switch {
	case t.Metric == result.NoMetric && t.Func == "":
		return fmt.Errorf("%s cannot be a metric, as its values are no numbers: make them the key, and count them", t.Name)
	case t.Metric == result.NoMetric:
		return fmt.Errorf("%s cannot be a metric, as %s() is not additive: use %s", t.Name, t.Func, t.Instead)
	case t.Estimate:
		return fmt.Errorf("%s cannot be a metric, as its values are estimates: leave out --burst", t.Name)
	}
	for _, c := range t.Key {
		if c.Type.Kind == format.Stack {
			return fmt.Errorf("%s cannot be a metric, as its key has a stack: leave the stack out, or read the map as a profile", t.Name)
		}
	}
	return nil
}

func kindOf(m result.Metric) Kind {
	return map[result.Metric]Kind{result.Counter: Counter, result.Gauge: Gauge, result.Summary: Summary, result.Distribution: Distribution}[m]
}

// unitOf returns the unit of a table's numbers.
func unitOf(t result.Table) string {
	return map[event.Unit]string{event.Nanoseconds: "seconds", event.Bytes: "bytes"}[t.Unit]
}

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_]+`)

// clean returns a name with underscores in place of what no name may have.
func clean(name string) string { return notInName.ReplaceAllString(name, "_") }

// label returns the name of a label. Those that Prometheus uses itself get another name.
func label(column string) string {
	name := strings.TrimLeft(clean(column), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' || name == "le" || name == "quantile" {
		return "key_" + name
	}
	return name
}

// mostLabel is how many bytes the value of a label may have: whoever runs a process chooses its name, and the path of its cgroup.
const mostLabel = 1024

// labelsOf returns the values of the labels of a key. An absent element is "", which is no label.
func labelsOf(columns []result.Column, key []any) []string {
	labels := make([]string, len(key))
	for i, v := range key {
		labels[i] = labelOf(columns[i].Type, v)
	}
	return labels
}

// labelOf returns a value as it is, without quotes and escapes; names for enums, paths for cgroups, and numbers without their unit.
func labelOf(t event.Type, v any) string {
	text := ""
	switch v := v.(type) {
	case nil:
		return ""
	case format.Verbatim:
		text = string(v)
	case string:
		if text = v; t.Kind == event.GID {
			text = format.Address(t, v).String()
		}
	default:
		text = textOf(t, v)
	}
	if len(text) <= mostLabel && utf8.ValidString(text) { // in a fraction of the time of ToValidUTF8
		return text
	}
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) <= mostLabel {
		return text
	}
	text = text[:mostLabel]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

func textOf(t event.Type, v any) string {
	if t.Kind == event.Bool {
		return fmt.Sprint(v)
	}
	if t.Enum != nil {
		if name := t.Enum.NameOf(event.To[int64](v)); name != "" {
			return name
		}
		if t.Unit != event.Cgroup && !t.Enum.Flags {
			return t.Enum.Unknown(format.Bits(t, v))
		}
	}
	if t.Unit == event.Errno {
		return string(format.AppendValue(nil, t, v))
	}
	return string(format.AppendNumber(make([]byte, 0, 20), v))
}

// labelNames returns the names of the labels on every series, sorted.
func (c *Config) labelNames() []string { return slices.Sorted(maps.Keys(c.Labels)) }

// withLabels adds their values, in the same order.
func (c *Config) withLabels(all []string) []string {
	for _, name := range c.labelNames() {
		all = append(all, c.Labels[name])
	}
	return all
}

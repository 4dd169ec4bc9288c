package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// This file resolves the periods of intervals and the rates of samples.

// period returns the period of interval:1s or interval:$name.
func (r *resolver) period(ref syntax.ProbeRef) (ir.Period, bool) {
	v, unit, ok := r.timer(ref)
	switch {
	case !ok:
	case unit != event.Nanoseconds:
		r.fail(ref.Span, fmt.Sprintf("%s is not a duration", ref.Name), "give the param a duration, like 1s")
	case event.Compare(v, int64(0)) <= 0 || event.Compare(v, int64(maxInt64)) > 0:
		r.fail(ref.Span, fmt.Sprintf("%s is not a period", ref), "a period must be above 0 and below 292 years")
	default:
		return ir.Period(event.To[int64](v)), true
	}
	return 0, false
}

// periodic notes in c the readings and their period of net:counters:100ms or net:counters:$name.
func (r *resolver) periodic(c *ir.Clause, ref syntax.ProbeRef) bool {
	named := ref
	named.Period = ""
	*c = *r.events(c.Tree, []syntax.ProbeRef{named})
	for _, p := range c.Probes {
		if p.Period == 0 {
			r.fail(ref.Span, fmt.Sprintf("%s has no period", p), fmt.Sprintf("write %s", named))
			return false
		}
	}
	for _, p := range c.Probes {
		if recorded := r.options.Periods[p.String()]; len(recorded) == 1 {
			r.asRecorded(ref.Period, int64(recorded[0]))
		}
	}
	var ok bool
	if c.Period, ok = r.period(syntax.ProbeRef{Group: named.String(), Name: ref.Period, Span: ref.Span}); !ok {
		return false
	}
	for _, p := range c.Probes {
		if c.Period < p.LeastPeriod {
			r.fail(ref.Span, fmt.Sprintf("a period of %v is too short for %s", c.Period, p), fmt.Sprintf("write %s:%v, or a longer one", p, p.LeastPeriod))
			return false
		}
		if recorded := r.options.Periods[p.String()]; len(recorded) > 0 && !slices.Equal(recorded, []ir.Period{c.Period}) {
			r.fail(ref.Span, fmt.Sprintf("%s was recorded with a period of %s, not of %v", p, syntax.Enumerate(recorded), c.Period),
				cmp.Or(r.leaveOut(ref.Period), fmt.Sprintf("write %s to use it as it is", p)))
			return false
		}
	}
	return true
}

// sampled notes in c the probe and the rate of profile:99hz, profile:$name or profile:hz:$name. Samples of a recording have a rate
// already, so profile:* is allowed there.
func (r *resolver) sampled(c *ir.Clause, ref syntax.ProbeRef) bool {
	if ref.Name != "hz" && ref.Name != "*" {
		var ok bool
		if c.Hz, ok = r.rate(ref); !ok {
			return false
		}
		c.Name = r.timerName(ref, 0)
	} else if !r.options.recorded() {
		r.fail(ref.Span, fmt.Sprintf("%s has no rate", ref), sayHowOften(ref.Group))
		return false
	}
	i := slices.IndexFunc(r.catalog, func(p *event.Probe) bool { return p.Sampled })
	switch {
	case i >= 0:
		p := r.catalog[i]
		c.Probes, c.Named = []*event.Probe{p}, map[*event.Probe]bool{p: true}
		return true
	case r.options.recorded():
		r.notRecorded(ref)
	default:
		r.fail(ref.Span, "no probe samples the CPUs", "interval:10ms { … } runs in user space")
	}
	return false
}

// sayHowOften returns the advice to add a rate.
func sayHowOften(group string) string {
	return fmt.Sprintf("write %s:99hz, for 99 samples of each CPU a second", group)
}

// rate returns the rate of profile:99hz, profile:$name or profile:hz:$name.
func (r *resolver) rate(ref syntax.ProbeRef) (hz int, ok bool) {
	literal := ref
	if !strings.Contains(ref.Name, "$") {
		literal.Name = strings.TrimSuffix(ref.Name, "hz")
	}
	if rates := r.options.Rates; len(rates) == 1 {
		r.asRecorded(ref.Name, int64(rates[0]))
	}
	v, unit, ok := r.timer(literal)
	switch {
	case !ok:
		return 0, false
	case unit != event.None || event.Compare(v, int64(0)) <= 0 || event.Compare(v, int64(maxHz)) > 0:
		r.fail(ref.Span, fmt.Sprintf("%s is not a rate", ref), fmt.Sprintf("a rate must be between 1 and %d", maxHz))
		return 0, false
	}
	hz = int(event.To[uint64](v))
	if rates := r.options.Rates; len(rates) > 0 && !slices.Equal(rates, []int{hz}) {
		var recorded []string
		for _, rate := range rates {
			recorded = append(recorded, fmt.Sprintf("%dhz", rate))
		}
		r.fail(ref.Span, fmt.Sprintf("the samples were recorded at %s, not at %dhz", strings.Join(recorded, " and "), hz),
			cmp.Or(r.leaveOut(ref.Name), fmt.Sprintf("write %s:* to use them as they are", ref.Group)))
		return 0, false
	}
	return hz, true
}

const maxHz = 1_000_000

// asRecorded sets the param of $name to the period or the rate of the recorded events, unless the user has chosen another one.
func (r *resolver) asRecorded(name string, value int64) {
	if p := r.param(name); strings.HasPrefix(name, "$") && p != nil && !syntax.IsArgument(name) && !r.chosen(p) && event.IsNumber(p.Type) {
		p.Value = literal(value).Val
	}
}

// leaveOut returns the advice not to choose the param of $name, or "" if there is no such param.
func (r *resolver) leaveOut(name string) string {
	if p := r.param(name); p != nil && r.chosen(p) {
		return fmt.Sprintf("leave out --%s to use them as they are", p.Name)
	}
	return ""
}

// chosen reports whether the user has given a value to a param.
func (r *resolver) chosen(p *ir.Param) bool {
	_, chosen := r.options.Params[p.Name]
	return chosen
}

// timerName returns bpftrace's name of a timer. Without a unit in the program, it has the period in us, or the rate.
func (r *resolver) timerName(ref syntax.ProbeRef, period ir.Period) string {
	counted, param, isParam := strings.Cut(cmp.Or(ref.Counted, ref.Name), "$")
	switch p := r.param("$" + param); {
	case !isParam || p == nil:
	case counted == "" && period%time.Microsecond != 0:
		counted = fmt.Sprintf("ns:%d", period.Nanoseconds())
	case counted == "" && period != 0:
		counted = fmt.Sprintf("us:%d", period.Microseconds())
	default:
		counted = cmp.Or(counted, "hz:") + fmt.Sprint(p.Value)
	}
	return ref.Group + ":" + counted
}

// timer returns the literal or the param after interval: or profile:. A param after a unit, as in interval:s:$name, is a plain
// number in that unit.
func (r *resolver) timer(ref syntax.ProbeRef) (value any, unit event.Unit, ok bool) {
	counted, name, found := strings.Cut(ref.Name, "$")
	if !found {
		tree, err := syntax.Parse(r.text.Name, ref.Name) // the parser has checked that it is a number
		if err != nil {
			return nil, event.None, false
		}
		return literalValue(tree.Expr)
	}
	example := "1s"
	if ref.TakesRate() {
		example = "99"
	}
	p := r.param("$" + name)
	if p != nil && p.Value == nil {
		p = nil
	}
	switch {
	case p == nil && syntax.IsArgument("$"+name):
		r.fail(ref.Span, fmt.Sprintf("the argument $%s is missing", name), fmt.Sprintf("write it after the program, like %s", example))
	case p == nil:
		r.fail(ref.Span, fmt.Sprintf("there is no param %s", name), fmt.Sprintf("declare it: param %s = %s", name, example))
	case !event.IsNumber(p.Type):
		r.fail(ref.Span, fmt.Sprintf("$%s is neither a duration nor a rate", name), "give it a value like "+example)
	case counted == "":
		return p.Value, p.Type.Unit, true
	case p.Type.Unit != event.None:
		r.fail(ref.Span, fmt.Sprintf("$%s already has a unit", name), fmt.Sprintf("write %s:$%s", ref.Group, name))
	case ref.TakesRate(): // in Hz, and so is a rate
		return p.Value, event.None, true
	default:
		return times(p.Value, timerUnits[counted]), event.Nanoseconds, true
	}
	return nil, event.None, false
}

// timerUnits are the units that may precede a param, in nanoseconds.
var timerUnits = map[string]uint64{"s:": 1e9, "ms:": 1e6, "us:": 1e3}

// times multiplies v by n, which is above 0. A result that does not fit becomes the largest number, which is not a valid period.
func times(v any, n uint64) any {
	switch {
	case event.Compare(v, int64(0)) < 0:
		return v
	case event.To[uint64](v) > math.MaxUint64/n:
		return uint64(math.MaxUint64)
	}
	return event.To[uint64](v) * n
}

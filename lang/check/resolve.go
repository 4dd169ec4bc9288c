package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes/event"
)

// clauses resolves a clause that names its probes. Each moment, and each rate of a profile, makes a clause of its own.
func (r *resolver) clauses(tree *syntax.Clause) []*ir.Clause {
	var out []*ir.Clause
	var events []syntax.ProbeRef
	for _, ref := range tree.Probes {
		c := &ir.Clause{Tree: tree, Text: tree.String()}
		ok := true
		switch {
		case ref.Group == "begin":
			c.Kind = ir.OnBegin
		case ref.Group == "end":
			c.Kind = ir.OnEnd
		case ref.Group == "self":
			c.Kind = ir.OnSignal
		case ref.Group == "interval":
			c.Kind = ir.OnInterval
			c.Period, ok = r.period(ref)
			c.Name = r.timerName(ref, c.Period)
		case ref.TakesRate():
			ok = r.sampled(c, ref)
		case ref.Period != "":
			ok = r.periodic(c, ref)
		case tried[ref.Group] != 0:
			ok = r.tried(c, ref)
		default:
			events = append(events, ref)
			continue
		}
		if c.Kind != ir.OnEvent && tree.Body == nil {
			r.fail(ref.Span, fmt.Sprintf("%s has no event to print", ref), fmt.Sprintf("add a body: %s { … }", ref))
		}
		if ok {
			out = append(out, c)
		}
	}
	if events != nil {
		out = append(out, r.events(tree, events))
	}
	return out
}

// events resolves a clause on the events of the probes that refs name.
func (r *resolver) events(tree *syntax.Clause, refs []syntax.ProbeRef) *ir.Clause {
	found := map[*event.Probe]bool{}
	c := &ir.Clause{Tree: tree, Text: tree.String(), Named: map[*event.Probe]bool{}}
	var without []syntax.ProbeRef
	for _, ref := range refs {
		c.LeftOut = append(c.LeftOut, r.untraced(ref)...)
		matches := r.match(ref)
		if matches == nil {
			without = append(without, ref)
		}
		for _, p := range matches {
			found[p] = true
			c.Named[p] = c.Named[p] || ref.String() == p.String()
		}
	}
	all := r.catalog
	for _, ref := range without {
		if len(found) > 0 && isPattern(ref.String()) && matching(r.known(), ref) != nil {
			continue
		}
		absent := r.absent(ref)
		if absent == nil {
			r.unknownProbe(ref)
		}
		for _, p := range absent {
			found[p] = true
		}
		all = slices.Concat(all, absent)
	}
	for _, p := range all {
		switch {
		case !found[p]:
		case p.Sampled && !r.options.recorded():
			c.LeftOut = append(c.LeftOut, ir.LeftOut{Probe: p, Why: fmt.Sprintf("it needs a rate, like %s:99hz", p.Group)})
		default:
			c.Probes = append(c.Probes, p)
		}
	}
	if len(c.Probes) == 0 && len(c.LeftOut) > 0 && !r.options.recorded() {
		r.fail(refs[0].Span, fmt.Sprintf("%s has no rate", refs[0]), sayHowOften(c.LeftOut[0].Probe.Group))
	}
	return c
}

// absent returns the probes that ref names and the recording lacks, if the program has chosen to go on without probes.
func (r *resolver) absent(ref syntax.ProbeRef) []*event.Probe {
	if !r.options.recorded() || r.missing == ir.MissingFails {
		return nil
	}
	absent := matching(r.known(), ref)
	if absent != nil && r.missing == ir.MissingWarns && r.untraced(ref) == nil {
		r.warn(ref.Span, fmt.Sprintf("the recording has no events of %s", ref), "")
	}
	return absent
}

// untraced returns the probes that ref names and that were not traced when the recording was made, or not everywhere.
func (r *resolver) untraced(ref syntax.ProbeRef) (all []ir.LeftOut) {
	if len(r.options.Untraced) == 0 {
		return nil
	}
	for _, p := range matching(r.known(), ref) {
		if why := r.options.Untraced[p.String()]; why != "" {
			all = append(all, ir.LeftOut{Probe: p, Why: "not recorded: " + why})
		}
	}
	return all
}

// answered reports a program that can do without each of its probes, if the recording has none of them: what it would say of them all is that nothing
// happened.
func (r *resolver) answered(clauses []*ir.Clause) {
	if !r.options.recorded() || len(r.errs) > 0 {
		return
	}
	var without *ir.Clause
	for _, c := range clauses {
		if slices.ContainsFunc(c.Probes, func(p *event.Probe) bool { return slices.Contains(r.catalog, p) }) {
			return
		}
		if without == nil && c.Kind == ir.OnEvent {
			without = c
		}
	}
	if without != nil {
		r.fail(without.Tree.Probes[0].Span, "the recording has no events of any probe of this program", r.recorded())
	}
}

// unknownProbe reports a name that no probe has.
func (r *resolver) unknownProbe(ref syntax.ProbeRef) {
	if r.options.recorded() && matching(r.known(), ref) != nil {
		r.notRecorded(ref)
		return
	}
	var names []string
	for _, p := range r.catalog {
		names = append(names, p.String())
	}
	help := cmp.Or(r.selected(ref), syntax.DidYouMean(ref.String(), names))
	if help == "" {
		if inGroup := r.match(syntax.ProbeRef{Group: ref.Group, Name: "*"}); inGroup != nil {
			help = fmt.Sprintf("%s has %s", ref.Group, syntax.Enumerate(inGroup))
		} else {
			help = "the groups are " + syntax.Enumerate(groups(r.catalog))
		}
	}
	r.fail(ref.Span, fmt.Sprintf("there is no probe %s", ref), help)
}

// notRecorded reports a probe whose events the recording lacks.
func (r *resolver) notRecorded(ref syntax.ProbeRef) {
	what := fmt.Sprintf("the recording has no events of %s", ref)
	if left := r.untraced(ref); left != nil {
		what += ", which was " + left[0].Why
	}
	r.fail(ref.Span, what, r.recorded())
}

// recorded describes what the recording has.
func (r *resolver) recorded() string {
	if len(r.catalog) == 0 {
		return "it has no events"
	}
	return "it has events of " + syntax.Enumerate(r.catalog)
}

// selected returns advice on how to select the events that ref names as if they had a probe of their own, like a system call, or
// "".
func (r *resolver) selected(ref syntax.ProbeRef) string {
	for _, p := range r.match(syntax.ProbeRef{Group: ref.Group, Name: "*"}) {
		if f := p.Field(p.Selector); f != nil && f.Type.Enum != nil && f.Type.Enum.Spelled(ref.Name) != "" {
			return fmt.Sprintf("write %s / %s == %s /", p, f.Name, f.Type.Enum.Spelled(ref.Name))
		}
	}
	return ""
}

// unknownNames reports each word of a clause that is not a field of all its probes.
func (r *resolver) unknownNames(checks []*checker) {
	var words []unknown // as the first probe without it reports it
	lacking := map[syntax.Span][]*event.Probe{}
	for _, ch := range checks {
		if ch.probe == nil {
			r.noEvent(ch)
			continue
		}
		for _, u := range r.misplaced(shown(ch.unknown)) {
			if lacking[u.span] == nil {
				words = append(words, u)
			}
			lacking[u.span] = append(lacking[u.span], ch.probe)
		}
	}
	var all []*event.Probe
	for _, ch := range checks {
		if ch.probe != nil {
			all = append(all, ch.probe)
		}
	}
	for _, u := range shown(words) {
		r.unknownName(u, lacking[u.span], all)
	}
}

// shown returns the first of many unknown words. No more mistakes are shown.
func shown(words []unknown) []unknown { return words[:min(len(words), syntax.MaxErrors+1)] }

// noEvent reports fields in a clause that no event triggers.
func (r *resolver) noEvent(ch *checker) {
	for _, u := range shown(ch.unknown) {
		help := cmp.Or(foreignWord(u.name), r.readAt(u.name))
		if enum := event.EnumOf(u.want); enum != nil && u.want.Unit != event.Cgroup {
			help = cmp.Or(syntax.DidYouMean(u.name, enum.Names), "names are "+syntax.Enumerate(enum.Names))
		}
		r.fail(u.span, fmt.Sprintf("%s has no event, so there is no field %s", ch.clause.Kind, u.name), help)
	}
}

// unknownName reports a word that is not a field of the probes without, a subset of the probes all.
func (r *resolver) unknownName(u unknown, without, all []*event.Probe) {
	var with []*event.Probe
	for _, p := range all {
		if !slices.Contains(without, p) {
			with = append(with, p)
		}
	}
	msg := fmt.Sprintf("no field %s in %s", u.name, syntax.Enumerate(without))
	fields := append(fieldNames(all), builtins...)
	switch enum := event.EnumOf(u.want); {
	case isStack(u.name):
		r.fail(u.span, fmt.Sprintf("%s has no task, so there is no %s", syntax.Enumerate(without), u.name), "capture stacks at other probes")
	case len(with) > 0:
		r.fail(u.span, msg, "name only probes that have it: "+syntax.Enumerate(with))
	case u.want != nil && u.want.Unit == event.Cgroup:
		r.fail(u.span, msg, `the path of a cgroup stands in quotes: "/system.slice"`)
	case enum != nil:
		r.fail(u.span, fmt.Sprintf("%s is neither a name of %s nor a field of %s", u.name, enum.Name, syntax.Enumerate(without)),
			cmp.Or(syntax.DidYouMean(u.name, enum.Names), syntax.DidYouMean(u.name, fields), "its names are "+syntax.Enumerate(enum.Names)))
	case u.want != nil && u.want.Kind == event.String:
		r.fail(u.span, msg, fmt.Sprintf("write strings in quotes: %q", u.name))
	default:
		r.fail(u.span, msg, cmp.Or(r.foreign(u.name), r.whoNames(u), syntax.DidYouMean(u.name, fields), r.whoHas(u.name)))
	}
}

// foreign returns the advice for a word of bpftrace that is not a field of any probe, or is a builtin elsewhere, or "".
func (r *resolver) foreign(word string) string {
	if r.having(word) != nil && !slices.Contains(builtins, word) {
		return ""
	}
	return foreignWord(word)
}

// misplaced drops the names of values if other words are wrong too: in qp.stat == RTR only qp.stat is wrong.
func (r *resolver) misplaced(words []unknown) []unknown {
	isName := func(u unknown) bool { return r.whoNames(u) != "" }
	if others := slices.DeleteFunc(slices.Clone(words), isName); len(others) > 0 {
		return others
	}
	return words
}

// whoNames reports which field has a word as a value. It returns "" if the word stands where it would be known as such a value.
func (r *resolver) whoNames(u unknown) string {
	if u.want != nil || r.having(u.name) != nil {
		return ""
	}
	for _, p := range r.catalog {
		for _, f := range p.Fields {
			if enum := event.EnumOf(&f.Type); enum != nil && enum.Spelled(u.name) != "" {
				return fmt.Sprintf("%s is a name of %s: compare a field like %s with it", enum.Spelled(u.name), enum.Name, f.Name)
			}
		}
	}
	return ""
}

func fieldNames(in []*event.Probe) []string {
	var names []string
	for _, p := range in {
		for _, f := range p.AllFields() {
			names = append(names, f.Name)
		}
	}
	return names
}

// readAt returns advice on where to read a field that a clause without events does not have.
func (r *resolver) readAt(field string) string {
	with := r.having(field)
	if len(with) == 0 || with[0].Field(field).Common {
		return "read fields in clauses that name probes"
	}
	return "read it in clauses of " + syntax.Enumerate(with)
}

// whoHas reports which probes have a field, or returns "".
func (r *resolver) whoHas(field string) string {
	if with := r.having(field); with != nil {
		return fmt.Sprintf("%s is a field of %s", field, syntax.Enumerate(with))
	}
	return ""
}

// bare resolves an expression that names no probe. It stands for the probes whose events have all its fields. It returns nil after
// a mistake.
func (r *resolver) bare(n ast.Node, block *syntax.Block) *ir.Clause {
	tree := (&syntax.Clause{Pred: n, Body: block, Span: syntax.SpanOf(n)}).Conditioned(acts)
	c := &ir.Clause{Inferred: true, Tree: tree, Text: syntax.Print(n)}
	if block != nil {
		c.Text += " " + block.String()
	}
	var fit, all []*checker
	var apart []*event.Probe
	for _, p := range r.catalog {
		ch := r.try(tree, p)
		all = append(all, ch)
		switch {
		case slices.ContainsFunc(ch.unknown, r.needsOtherProbe):
		case p.Apart:
			apart = append(apart, p)
		default:
			fit = append(fit, ch)
			c.Probes = append(c.Probes, p)
		}
	}
	at := syntax.SpanOf(n)
	switch {
	case len(fit) > 0 && !slices.ContainsFunc(fit, func(ch *checker) bool { return len(ch.errs) == 0 }):
		r.errs = append(r.errs, fit[0].errs...) // wrong for each of them
	case len(fit) == 0 && len(apart) > 0:
		r.fail(at, "only probes that a program must name have these fields", qualified(c, apart))
	case len(fit) == 0:
		r.noProbe(n, all)
	case !slices.ContainsFunc(fit, func(ch *checker) bool { return len(ch.fields) > 0 }):
		r.fail(at, "every event has these fields, so the probe is unknown", qualified(c, c.Probes))
	case len(groups(c.Probes)) > 1:
		r.fail(at, "several groups of probes have these fields: "+syntax.Enumerate(groups(c.Probes)), qualified(c, c.Probes))
	default:
		return c
	}
	return nil
}

// try checks a clause as if it named only the probe p.
func (r *resolver) try(tree *syntax.Clause, p *event.Probe) *checker {
	c := []*ir.Clause{{Tree: tree, Probes: []*event.Probe{p}}}
	return newAnalysis(r, c).run(c)[0]
}

// needsOtherProbe reports whether an unknown word rules the probe out. A misspelt name of a value does not.
func (r *resolver) needsOtherProbe(u unknown) bool {
	return event.EnumOf(u.want) == nil || r.having(u.name) != nil
}

// qualified returns advice on how to name the probes of a bare expression. Its example is the probe with the most fields.
func qualified(c *ir.Clause, candidates []*event.Probe) string {
	best := slices.MaxFunc(candidates, func(a, b *event.Probe) int { return len(a.Fields) - len(b.Fields) })
	help := "name the probe: " + (&syntax.Clause{Pred: c.Tree.Pred, Body: c.Tree.Body, Probes: []syntax.ProbeRef{{
		Group: best.Group, Name: best.Name}}}).String()
	all := groups(candidates)
	switch {
	case len(all) > 1:
		for i := range all {
			all[i] += ":*"
		}
		help += "; or all of a group: " + syntax.Enumerate(all)
	case len(candidates) > 1:
		help += "; candidates are " + syntax.Enumerate(candidates)
	}
	return help
}

// noProbe reports why no probe has all the fields of a bare expression: it names the first word that is unknown to all probes, or
// lists which probe has which field.
func (r *resolver) noProbe(n ast.Node, checks []*checker) {
	best := slices.MinFunc(checks, func(a, b *checker) int { return len(a.unknown) - len(b.unknown) })
	var all []*event.Probe
	for _, ch := range checks {
		all = append(all, ch.probe)
	}
	wrong := r.misplaced(best.unknown)
	for _, u := range wrong {
		if r.having(u.name) == nil {
			r.unknownField(n, u, slices.Concat(fieldNames(all), builtins))
			return
		}
	}
	names := best.fields
	for _, u := range wrong {
		names = append(names, u.name)
	}
	slices.Sort(names)
	var where []string
	for _, name := range slices.Compact(names) {
		where = append(where, r.whoHas(name))
	}
	r.fail(syntax.SpanOf(n), "no probe has all these fields", strings.Join(where, "; "))
}

// probesCalled returns advice on how to name the probes that a word may mean, as a group or as the name of a probe. It returns ""
// if there are none.
func (r *resolver) probesCalled(word string) string {
	if slices.Contains(groups(r.catalog), word) {
		return fmt.Sprintf("the probes of the group %s are %[1]s:*", word)
	}
	called := slices.DeleteFunc(slices.Clone(r.catalog), func(p *event.Probe) bool { return p.Name != word })
	if len(called) == 0 {
		return ""
	}
	return "did you mean the probe " + syntax.Enumerate(called) + "?"
}

// unknownField reports a word that is no field of any probe, in an expression n without probes. fields are what a word may be.
func (r *resolver) unknownField(n ast.Node, u unknown, fields []string) {
	msg, at := fmt.Sprintf("no probe has a field %s", u.name), u.span
	exact, near := r.meant()
	if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, u.name) }) {
		near = ""
	}
	if exact+near != "" {
		msg, at = fmt.Sprintf("there is no command, script or field %s", r.text.Content[syntax.SpanOf(n).From:syntax.SpanOf(n).To]), syntax.SpanOf(n)
	}
	if strings.Contains(r.text.Content, "-") { // a name of a script, and not what its first part is called
		exact = cmp.Or(exact, near)
	}
	r.fail(at, msg, cmp.Or(exact, foreignWord(u.name), r.probesCalled(u.name), r.whoNames(u), near, syntax.DidYouMean(u.name, fields)))
}

// loneWord matches a program that may be the name of a command or of a script.
var loneWord = regexp.MustCompile(`^[A-Za-z_][\w-]*$`)

// meant returns advice about a program that is a single word.
func (r *resolver) meant() (exact, near string) {
	word := loneWord.FindString(strings.TrimSpace(r.text.Content))
	if word == "" || r.options.Meant == nil {
		return "", ""
	}
	return r.options.Meant(word)
}

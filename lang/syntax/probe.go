package syntax

import (
	"fmt"
	"strconv"
	"strings"
)

// moments are the probes without a colon, in their spellings. These words are not names of fields.
var moments = map[string]string{"begin": "begin", "BEGIN": "begin", "end": "end", "END": "end"}

// foreign are the types of bpftrace's probes, which name places in a kernel instead of probes of the catalog.
var foreign = map[string]bool{
	"kprobe": true, "kretprobe": true, "uprobe": true, "uretprobe": true, "usdt": true, "tracepoint": true, "rawtracepoint": true,
	"fentry": true, "fexit": true, "kfunc": true, "kretfunc": true, "software": true, "hardware": true, "watchpoint": true,
	"asyncwatchpoint": true, "iter": true,
}

// shortForeign are bpftrace's short names of its probes.
var shortForeign = map[string]string{
	"k": "kprobe", "kr": "kretprobe", "u": "uprobe", "ur": "uretprobe", "U": "usdt", "t": "tracepoint", "rt": "rawtracepoint",
	"f": "fentry", "fr": "fexit", "s": "software", "h": "hardware", "w": "watchpoint", "aw": "asyncwatchpoint", "it": "iter",
}

// shortTimers are bpftrace's short names of timers.
var shortTimers = map[string]string{"i": interval, "p": profile}

// Timers have a duration or a rate after the colon.
const (
	interval = "interval"
	profile  = "profile"
)

// self is the group of the moments that another process causes, and askedFor the only one of them.
const (
	self     = "self"
	askedFor = "signal:SIGUSR1"
)

// Tests and benchmarks have a name of the program's choice, which may have hyphens.
const (
	test  = "test"
	bench = "bench"
)

// timed reports whether probes of the group are timers.
func timed(group string) bool { return group == interval || group == profile }

// TakesRate reports whether a rate follows the colon: profile:99hz.
func (r ProbeRef) TakesRate() bool { return r.Group == profile }

// probe reads `group:name` at pos, without blanks and as written. The group may contain `*` but not `?`: a?b:c is a condition.
func (l lexer) probe(pos int) (ref ProbeRef, ok bool) {
	run := func(from int, extra string) int {
		for from < len(l.src) && (isLetter(l.src[from]) || isDigit(l.src[from]) || strings.IndexByte(extra, l.src[from]) >= 0) {
			from++
		}
		return from
	}
	colon := run(pos, "*")
	if colon == pos || colon == len(l.src) || l.src[colon] != ':' {
		return ProbeRef{}, false
	}
	ref.Group = l.src[pos:colon]
	if long := shortTimers[ref.Group]; long != "" {
		ref.Group = long
	}
	extra := "*?:"
	switch ref.Group {
	case interval, profile:
		extra = "*:$.µμ"
	case test, bench:
		extra = ":-"
	}
	end := run(colon+1, extra)
	if extra == "*?:" && strings.Contains(l.src[colon+1:end], ":") {
		end = run(end, "*?:$.µμ") // a period
	}
	ref.Name, ref.Span = l.src[colon+1:end], Span{pos, end}
	return ref, true
}

// atProbe reports whether the current token begins a probe.
func (p *parser) atProbe() bool { return p.isProbe(p.lex, p.tok) }

// isProbe reports whether t, after which l stands, begins a probe.
func (p *parser) isProbe(l lexer, t token) bool {
	return l.beginsProbe(t) || l.labels(t)
}

// beginsProbe reports whether a probe without a label begins with t.
func (l lexer) beginsProbe(t token) bool {
	_, ok := l.probe(t.span.From)
	return ok || t.kind == ident && moments[t.text] != ""
}

// labels reports whether t, after which l stands, is the label of a probe: label=begin.
func (l lexer) labels(t token) bool {
	if t.kind != ident || !isName(t.text) || !l.next().is("=") {
		return false
	}
	return l.beginsProbe(l.next())
}

// probe parses a reference to probes, which may have a label.
func (p *parser) probe() ProbeRef {
	if !p.lex.labels(p.tok) {
		return p.reference()
	}
	label := p.tok
	p.next()
	p.next()
	ref := p.reference()
	ref.Label, ref.Span.From = label.text, label.span.From
	return ref
}

func (p *parser) reference() ProbeRef {
	ref, ok := p.lex.probe(p.tok.span.From)
	if !ok {
		return p.moment()
	}
	if long := shortForeign[ref.Group]; long != "" {
		ref.Group = long
	}
	switch {
	case foreign[ref.Group]:
		p.foreign(ref)
	case timed(ref.Group):
		p.timer(&ref)
	case ref.Group == self && ref.Name != askedFor:
		p.fail(ref.Span, fmt.Sprintf("there is no probe %s", ref), "write self:signal:SIGUSR1, which runs when that signal comes")
	case ref.Group == self:
	case ref.Name == "" && (ref.Group == test || ref.Group == bench):
		p.fail(ref.Span, fmt.Sprintf("a %s has a name", ref.Group), fmt.Sprintf("write %s:sums, with a name of your choice", ref.Group))
	case ref.Name == "":
		p.fail(ref.Span, fmt.Sprintf("expected the name of a probe after %s:", ref.Group),
			fmt.Sprintf("write it without blanks, or %s:* for all of the group", ref.Group))
	case strings.Contains(ref.Name, ":"):
		p.period(&ref)
	}
	p.lex.pos, p.tok.span.To = ref.Span.To, ref.Span.To
	p.next()
	return ref
}

// period cuts the period from the name of a probe that reads something again and again: net:counters:100ms.
func (p *parser) period(ref *ProbeRef) {
	name, text, _ := strings.Cut(ref.Name, ":")
	param, isParam := strings.CutPrefix(text, "$")
	period, ok := text, isParam && (isName(param) || IsArgument(text))
	if !isParam {
		period, ok = duration(text)
	}
	if !ok || name == "" {
		p.fail(ref.Span, "a probe has two parts", "write group:name, as trace -l lists them; a probe that reads counters may have a period, like net:counters:100ms")
	}
	ref.Name, ref.Period = name, period
}

// foreign reports a probe of bpftrace. Callers that know the catalog can improve the help.
func (p *parser) foreign(ref ProbeRef) {
	mistake := p.text.Error(ref.Span, fmt.Sprintf("probes of type %s are not available", ref.Group),
		"write group:name, as trace -l lists them")
	mistake.Foreign = ref.String()
	p.abandon(mistake)
}

func (p *parser) moment() ProbeRef {
	t := p.tok
	if t.kind != ident || moments[t.text] == "" {
		p.unexpected("a probe", "write group:name, like nvme:complete_rq or nvme:*")
	}
	p.next()
	return ProbeRef{Group: moments[t.text], Span: t.span}
}

// paramUnits are the units that may precede a param that is a plain number.
var paramUnits = map[string]map[string]bool{
	interval: {"s:": true, "ms:": true, "us:": true},
	profile:  {"hz:": true},
}

// timer normalises the text after interval: and profile:. s:1 becomes 1s, and hz:99 becomes 99hz.
func (p *parser) timer(ref *ProbeRef) {
	text := ref.Name
	ref.Counted = counted(text)
	if unit, param, ok := strings.Cut(text, "$"); ok && (isName(param) || IsArgument("$"+param)) && (unit == "" || paramUnits[ref.Group][unit]) {
		return
	}
	if ref.TakesRate() && (text == "*" || text == "hz") {
		return // the samples of a recording, at any rate
	}
	if unit, n, ok := strings.Cut(text, ":"); ok {
		text = n + unit
	}
	name, ok := duration(text)
	help := "write interval:1s, interval:100ms or, with a param of the program, interval:$name or interval:s:$name"
	if ref.TakesRate() {
		name, ok = rate(text)
		help = "write profile:99hz, or profile:10ms for 100hz: a duration must divide a second"
	}
	if !ok {
		p.fail(ref.Span, fmt.Sprintf("%s is not a valid timer", p.text.Content[ref.Span.From:ref.Span.To]), help)
	}
	ref.Name = name
}

// counted returns what bpftrace calls the period or the rate text. bpftrace has no 99hz; it is called what hz:99 is.
func counted(text string) string {
	if strings.Contains(text, ":") {
		return text
	}
	n, isRate := hertz(text)
	switch ns := nanoseconds(text); {
	case isRate:
		return fmt.Sprintf("hz:%d", n)
	case ns == 0:
		return ""
	case ns%units["us"] != 0:
		return fmt.Sprintf("ns:%d", ns)
	default:
		return fmt.Sprintf("us:%d", ns/units["us"])
	}
}

// duration returns text if it is a duration above zero, or the duration of the rate text.
func duration(text string) (string, bool) {
	if n, ok := hertz(text); ok {
		return formatDuration((1e9 + n/2) / n), true
	}
	ns := nanoseconds(text)
	if _, unit := cutUnit(text); unit == "" {
		text = formatDuration(ns)
	}
	return text, ns > 0
}

// rate returns text if it is a rate, or the rate of the duration text.
func rate(text string) (string, bool) {
	if n, ok := hertz(text); ok {
		return fmt.Sprintf("%dhz", n), true
	}
	ns := nanoseconds(text)
	if ns == 0 || 1e9%ns != 0 {
		return "", false
	}
	return fmt.Sprintf("%dhz", 1e9/ns), true
}

// hertz parses a whole rate between 1hz and 1000000000hz.
func hertz(text string) (n uint64, ok bool) {
	digits, unit := cutUnit(text)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && strings.EqualFold(unit, "hz") && 0 < n && n <= 1e9
}

// nanoseconds parses a duration, which may lack its unit. It returns 0 if text is not one.
func nanoseconds(text string) uint64 {
	_, unit := cutUnit(text)
	v, msg, _ := parseNumber(text)
	if msg != "" || unit != "" && units[unit] == 0 || strings.HasSuffix(unit, "B") {
		return 0
	}
	return v
}

// formatDuration writes nanoseconds in the largest unit in which they are a whole number.
func formatDuration(ns uint64) string {
	for _, unit := range []string{"s", "ms", "us"} {
		if ns%units[unit] == 0 {
			return fmt.Sprintf("%d%s", ns/units[unit], unit)
		}
	}
	return fmt.Sprintf("%dns", ns)
}

// isName reports whether text is a name without dots.
func isName(text string) bool {
	for i := range len(text) {
		if !isLetter(text[i]) && (i == 0 || !isDigit(text[i])) {
			return false
		}
	}
	return text != ""
}

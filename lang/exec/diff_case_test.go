package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes/event"
)

// This file is one case of the differential test: how it runs on both sides, what is compared, and its file format.

// diffEvents of each program come in batches. The interval clauses run between batches.
const diffEvents, diffBatches = 100, 4

// diffKeys is the size of maps for which the program sets none.
const diffKeys = 256

// diffCase is a program with its events.
type diffCase struct {
	probes []*event.Probe
	prog   *diffProgram // nil if it was read from a file: then there is no third opinion
	text   string
	inUser bool // the program needs user space
	events []rawEvent
	format output.Format
	cpus   int // for the planner, which shares aggregations among many CPUs
	// compareExchange is a feature of newer kernels.
	compareExchange bool
	// compare adds a second run in user space to the kernel's side.
	compare bool
	// alone reports to the planner that BPF programs of a probe do not overlap.
	alone bool
	// exemplars makes histograms keep them.
	exemplars bool
	// long is set if user space runs a clause because a loop of it is too long for the kernel.
	long bool
}

// diffFailure describes what is wrong.
type diffFailure struct {
	kind   string // shrinking keeps the kind
	detail string
}

func differ(kind, format string, args ...any) *diffFailure {
	return &diffFailure{kind, fmt.Sprintf(format, args...)}
}

// randomCase makes case n of a seed.
func randomCase(seed uint64, n int64, all []*event.Probe) *diffCase {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	g := &diffGen{Rand: r, probes: all, inUser: r.IntN(8) == 0}
	c := &diffCase{
		probes: all, prog: g.program(), inUser: g.inUser, format: output.Text, cpus: 2, compareExchange: r.IntN(4) > 0 && plan.CompareExchange(),
		compare: r.IntN(8) == 0, alone: r.IntN(3) == 0, exemplars: r.IntN(3) == 0,
	}
	if r.IntN(6) == 0 {
		c.cpus = 1 << 16
	}
	if r.IntN(4) == 0 {
		c.format = output.JSON
	}
	c.text = c.prog.String()
	nsecs := boundary(r) << 8
	for i := range diffEvents {
		p := all[0]
		if c.prog.others() && r.IntN(3) == 0 {
			p = all[1]
		}
		e := randomEvent(r, p)
		e.set(p.Field("nsecs"), nsecs+uint64(i))
		c.events = append(c.events, e)
	}
	return c
}

// others reports whether the program uses events of diff:other.
func (p *diffProgram) others() bool {
	return slices.ContainsFunc(p.clauses, func(c *diffClause) bool { return c.where != "diff:event" })
}

// diffSide is a run of a program on one of the sides.
type diffSide struct {
	*Run
	plan *plan.Plan
	// out is its output, shadowed the output of its second run.
	out, shadowed bytes.Buffer
	feed          func(events []rawEvent) error
}

func (s *diffSide) start(f output.Format) error {
	var err error
	s.Run, err = Start(s.plan, Options{
		Sink: output.NewPrinter(&s.out, f, event.NewWallClock(time.Unix(0, 0).UTC())), Shadow: output.NewPrinter(&s.shadowed, f, event.NewWallClock(time.Unix(0, 0).UTC())),
		Now: func() uint64 { return 1e12 }, Context: context.Background(),
	})
	return err
}

// pass runs the begin clauses, the batches, and what runs between them.
func (s *diffSide) pass(events []rawEvent) error {
	if err := s.Begin(); err != nil {
		return err
	}
	for i := range diffBatches {
		if err := s.feed(events[batchBegin(i, len(events)):batchBegin(i+1, len(events))]); err != nil {
			return err
		}
		if i == diffBatches-1 {
			break
		}
		for _, period := range s.Intervals() {
			if err := s.Interval(period, 1e12); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchBegin is the index of the first event of a batch.
func batchBegin(batch, events int) int { return batch * events / diffBatches }

// run runs the program on both sides and describes what is wrong.
func (c *diffCase) run(k *diffKernel) (failure *diffFailure) {
	defer func() {
		if r := recover(); r != nil {
			failure = differ(fmt.Sprintf("panic: %v", r), "%s", debug.Stack())
		}
	}()
	prog, err := compile("diff", c.text, c.probes, check.Options{Exemplars: c.exemplars})
	if err != nil {
		return c.rejected(err)
	}
	return c.runProgram(k, prog)
}

// rejected is a mistake of the generator or of the checker. Random programs do set maps only to their own values.
func (c *diffCase) rejected(err error) *diffFailure {
	if c.prog != nil && strings.Contains(err.Error(), "the type of ") {
		return nil
	}
	message, _, _ := strings.Cut(err.Error(), "\n")
	return differ("compile"+strings.TrimLeft(message, "dif:0123456789"), "%v", err)
}

func (c *diffCase) runProgram(k *diffKernel, prog *ir.Program) *diffFailure {
	options := c.options()
	user, kernel := &diffSide{}, &diffSide{}
	var err error
	if kernel.plan, err = plan.New(prog, options); err != nil {
		return differ("plan", "%v", err)
	}
	if f := c.fallback(kernel.plan); f != nil {
		return f
	}
	options.NoKernel, options.Compare = true, false
	if user.plan, err = plan.New(prog, options); err != nil {
		return differ("plan", "%v", err)
	}
	for _, side := range []*diffSide{user, kernel} {
		if err := side.start(c.format); err != nil {
			return differ("start", "%v", err)
		}
		defer side.Close()
	}
	user.feed = user.feedUser
	loaded, err := k.load(kernel.plan, kernel.Run)
	if err != nil {
		return differ("load", "%v", err)
	}
	defer loaded.close()
	kernel.feed = func(events []rawEvent) error { return kernel.feedKernel(k, loaded, events) }
	for _, side := range []*diffSide{user, kernel} {
		if err := side.pass(c.events); err != nil {
			return differ("run", "%v", err)
		}
	}
	return c.judge(user, kernel)
}

func (c *diffCase) options() plan.Options {
	return plan.Options{
		StackLeft:       func(*event.Probe) (int, error) { return diffStack, nil },
		CompareExchange: func() bool { return c.compareExchange }, CPUs: c.cpus, MapKeys: diffKeys, Compare: c.compare,
		Alone: func(*event.Probe) bool { return c.alone },
	}
}

// fallback reports what the planner left to user space without need. Of loops in loops that change many things, one is too long now and then, and
// takes other clauses with it.
func (c *diffCase) fallback(p *plan.Plan) *diffFailure {
	c.long = slices.ContainsFunc(p.Sites, func(s *plan.Site) bool { return s.InUser != nil && s.InUser.Reason == tooLong })
	for _, part := range p.Sites {
		switch {
		case c.inUser || c.long:
		case part.InUser != nil:
			return differ("fallback", "%s runs in user space: %s", part.Clause, part.InUser.Reason)
		case len(part.User) > 0:
			return differ("fallback", "a part of the predicate of %s runs in user space: %s", part.Clause, part.User[0].Why.Reason)
		}
	}
	return nil
}

// tooLong is the planner's reason for a loop that it does not copy into the kernel.
const tooLong = "the loop is too long for the kernel"

// feedUser makes records of the events as if the kernel could do nothing else.
func (s *diffSide) feedUser(events []rawEvent) error {
	layouts := s.plan.Layouts()
	for _, e := range events {
		for _, l := range layouts {
			if l.Probe != e.probe {
				continue
			}
			record := make([]byte, l.Size)
			binary.NativeEndian.PutUint64(record, uint64(l.ID))
			for _, copied := range l.Copies() {
				copy(record[copied.To:copied.To+copied.Size], e.raw[copied.From:])
			}
			if err := s.event(layouts, record); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *diffSide) event(layouts []*event.Layout, record []byte) error {
	var e event.Event
	if err := event.Decode(layouts, record, &e); err != nil {
		return err
	}
	_, err := s.Event(&e)
	return err
}

func (s *diffSide) feedKernel(k *diffKernel, all diffLoaded, events []rawEvent) error {
	layouts := s.plan.Layouts()
	return k.run(all, events, func(record []byte) error { return s.event(layouts, record) })
}

// judge compares the results of the sides.
func (c *diffCase) judge(user, kernel *diffSide) *diffFailure {
	var opinion *opinion
	if c.prog != nil {
		if opinion = c.ask(); opinion.crowded() {
			return nil
		}
	}
	if f := differentText("text", "user space", &user.out, "kernel", &kernel.out); f != nil {
		return f
	}
	if user.Stopped() != kernel.Stopped() {
		return differ("exit", "after exit() user space has stopped: %v, kernel: %v", user.Stopped(), kernel.Stopped())
	}
	if opinion != nil {
		if n := bytes.Count(user.out.Bytes(), []byte("diff:")); n != opinion.printed {
			return differ("opinion: events", "%d events are printed, and the third opinion is %d", n, opinion.printed)
		}
	}
	if f := c.compareMaps(user, kernel, opinion); f != nil {
		return f
	}
	if f := c.compareLosses(user, kernel, opinion); f != nil {
		return f
	}
	return c.end(user, kernel)
}

func (c *diffCase) compareMaps(user, kernel *diffSide, opinion *opinion) *diffFailure {
	defer user.lock()()
	defer kernel.lock()()
	for _, m := range user.plan.Program.Maps {
		ours, err := rows(user.machine.stores[m])
		if err != nil {
			return differ("entries", "%v", err)
		}
		theirs, err := rows(kernel.machine.stores[m])
		if err != nil {
			return differ("entries", "%v", err)
		}
		if f := compareRowTexts("map", m.Name, "user space", ours, "kernel", theirs); f != nil {
			return f
		}
		if opinion != nil {
			if f := compareRowTexts("opinion: map", m.Name, "user space", ours, "third opinion", opinion.rows(m.Name, ours)); f != nil {
				return f
			}
		}
	}
	return nil
}

// end lets both sides print their maps.
func (c *diffCase) end(user, kernel *diffSide) *diffFailure {
	for _, side := range []*diffSide{user, kernel} {
		if err := side.End(); err != nil {
			return differ("end", "%v", err)
		}
	}
	if f := differentText("text at the end", "user space", &user.out, "kernel", &kernel.out); f != nil {
		return f
	}
	if c.compare {
		return differentText("text of the second run", "user space", &user.out, "the second run", &kernel.shadowed)
	}
	return nil
}

// differentText shows the first line in which two outputs differ.
func differentText(kind, a string, ours *bytes.Buffer, b string, theirs *bytes.Buffer) *diffFailure {
	x, y := strings.SplitAfter(ours.String(), "\n"), strings.SplitAfter(theirs.String(), "\n")
	for i := range max(len(x), len(y)) {
		switch {
		case i >= len(x):
			return differ(kind, "%s prints nothing in line %d, %s:\n%s", a, i+1, b, y[i])
		case i >= len(y):
			return differ(kind, "%s prints nothing in line %d, %s:\n%s", b, i+1, a, x[i])
		case x[i] != y[i]:
			return differ(kind, "in line %d %s prints:\n%s%s:\n%s", i+1, a, x[i], b, y[i])
		}
	}
	return nil
}

func (c *diffCase) compareLosses(user, kernel *diffSide, opinion *opinion) *diffFailure {
	ours, err := user.MapLosses()
	if err != nil {
		return differ("losses", "%v", err)
	}
	theirs, err := kernel.MapLosses()
	if err != nil {
		return differ("losses", "%v", err)
	}
	if !slices.Equal(ours, theirs) {
		return differ("losses", "user space has lost %+v, the kernel %+v", ours, theirs)
	}
	if opinion == nil {
		return nil
	}
	for _, m := range opinion.prog.maps {
		var l MapLosses
		if i := slices.IndexFunc(ours, func(l MapLosses) bool { return l.Map == m.name }); i >= 0 {
			l = ours[i]
		}
		if o := opinion.maps[m]; l.Full != o.full || l.Absent != o.absent {
			return differ("opinion: losses", "%s has lost %+v, and the third opinion is %d full, %d absent", m.name, l, o.full, o.absent)
		}
	}
	return nil
}

// rows returns the elements of a map as text, by the text of their keys.
func rows(s mapStore) (map[string]string, error) {
	elements, err := s.elements()
	all := map[string]string{}
	for _, e := range elements {
		value := fmt.Sprint(e.State)
		if e.State == nil {
			value = diffKeyText(e.Value)
		}
		if len(e.Key) == 0 && e.State != nil && isZero(e.State) {
			continue // prints like none
		}
		all[diffKeyText(e.Key)] = value
	}
	return all, err
}

func compareRowTexts(kind, name, a string, ours map[string]string, b string, theirs map[string]string) *diffFailure {
	var lines []string
	for key := range merged(ours, theirs) {
		x, y := cmp.Or(ours[key], "nothing"), cmp.Or(theirs[key], "nothing")
		if x != y {
			lines = append(lines, fmt.Sprintf("%s[%s]: %s has %s, %s has %s", name, key, a, x, b, y))
		}
	}
	if lines == nil {
		return nil
	}
	slices.Sort(lines)
	return differ(kind, "%s", strings.Join(lines, "\n"))
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// ask runs the third opinion.
func (c *diffCase) ask() *opinion {
	o := newOpinion(c.prog, diffKeys)
	o.begin()
	for i := range diffBatches {
		for _, e := range c.events[batchBegin(i, len(c.events)):batchBegin(i+1, len(c.events))] {
			o.run(e)
		}
		if i < diffBatches-1 {
			o.tick()
		}
	}
	return o
}

// rows returns the opinion on a map. Where it has none, for histograms, it copies ours.
func (o *opinion) rows(name string, ours map[string]string) map[string]string {
	i := slices.IndexFunc(o.prog.maps, func(m *diffMap) bool { return m.name == name })
	if i < 0 {
		return ours
	}
	m := o.prog.maps[i]
	all := map[string]string{}
	for key, row := range o.maps[m].rows {
		var words []uint64
		for _, w := range row.state {
			words = append(words, bigWrap(w, false).Uint64())
		}
		switch {
		case m.agg == "":
			all[key] = diffKeyText(row.values())
		case isZero(words) && len(m.keys) == 0:
		case slices.Contains([]string{"hist", "lhist", "quantile"}, m.agg):
			all[key] = ours[key]
		default:
			all[key] = fmt.Sprint(words)
		}
	}
	return all
}

func (r *opinionRow) values() []any {
	if tuple, ok := r.value.([]any); ok {
		return tuple
	}
	return []any{r.value}
}

// String writes the case as readCase reads it.
func (c *diffCase) String() string {
	var b strings.Builder
	if c.inUser {
		b.WriteString("-- in user space\n")
	}
	if c.compare {
		b.WriteString("-- compare\n")
	}
	if c.alone {
		b.WriteString("-- alone\n")
	}
	if c.exemplars {
		b.WriteString("-- exemplars\n")
	}
	fmt.Fprintf(&b, "-- cpus %d\n-- format %s\n-- program\n%s-- events\n", c.cpus, c.format, c.text)
	for _, e := range c.events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// readCase reads a case. Lines that begin with # describe it.
func readCase(text string, all []*event.Probe) (*diffCase, error) {
	c := &diffCase{probes: all, cpus: 2, format: output.Text, compareExchange: plan.CompareExchange()}
	section := ""
	for line := range strings.Lines(text) {
		heading, ok := strings.CutPrefix(line, "-- ")
		switch {
		case ok:
			section = strings.TrimSpace(heading)
			c.inUser = c.inUser || section == "in user space"
			c.compare = c.compare || section == "compare"
			c.alone = c.alone || section == "alone"
			c.exemplars = c.exemplars || section == "exemplars"
			if err := c.option(section); err != nil {
				return nil, err
			}
		case section == "program":
			c.text += line
		case section == "events":
			e, err := readEvent(all, line)
			if err != nil {
				return nil, err
			}
			c.events = append(c.events, e)
		}
	}
	return c, nil
}

// option reads a heading with a value.
func (c *diffCase) option(heading string) error {
	name, value, _ := strings.Cut(heading, " ")
	var err error
	switch name {
	case "cpus":
		c.cpus, err = strconv.Atoi(value)
	case "format":
		c.format, err = output.ParseFormat(value)
	}
	return err
}

// code returns the instructions of a case.
func (c *diffCase) code() string {
	prog, err := compile("diff", c.text, c.probes, check.Options{Exemplars: c.exemplars})
	if err != nil {
		return ""
	}
	plan, err := plan.New(prog, c.options())
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	if err := plan.Dump(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

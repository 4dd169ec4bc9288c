package plan

import (
	"fmt"
	"maps"
	"slices"

	"trace/lang/codegen"
	"trace/lang/format"
	"trace/lang/ir"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
)

// Options control what a plan may use.
type Options struct {
	// NoKernel keeps every step in user space.
	NoKernel bool
	// Recorded reports that the events come from a recording: nothing is attached, and everything runs in user space.
	Recorded bool
	// RecordedStack finds the stacks of that recording; nil: it has none.
	RecordedStack func(number uint64) (s event.Stack, ok bool)
	// RecordStacks makes every record begin with two values, the numbers of kstack and ustack.
	RecordStacks bool
	// Cleared reports that [Run.Clear] may be called.
	Cleared bool
	// Rejected are probes whose generated code the kernel rejected. Their clauses run in user space.
	Rejected map[*event.Probe]bool
	// Compare sends all events of all clauses to user space too, so that a second run of the program in user space can follow the
	// first.
	Compare bool
	// Record sends the events that a predicate may accept to user space too, with all their fields, and with their stacks if the
	// program captures stacks: for [exec.Options.Record].
	Record bool
	// Children restricts all clauses on events to the processes of [probes.AttachOptions.Roots] and their descendants. The kernel
	// does this wherever the clauses run.
	Children bool
	// Below, if not "", restricts all clauses on events to this cgroup and the cgroups below it, like
	// [probes.AttachOptions.Cgroup]. The kernel does this too.
	Below string
	// Command is the process id of the command, the value of cpid; 0 while it is not known.
	Command int
	// Own is the process id of trace itself; 0 while it does not matter.
	Own int
	// Columns are the fields that are printed of events, and so captured; nil: all fields.
	Columns ir.Columns
	// Counted makes the BPF programs count the events that pass and the events that do not.
	Counted bool
	// Questions reports whether the kernel can have answers to conditions on what cgroups run, [probes.AttachOptions.Questions]; nil: it cannot.
	Questions func() bool
	// CountsFailures makes them count the reads of a process's memory that fail.
	CountsFailures bool
	// StackLeft returns how many bytes of stack generated code for a probe may use, at least [probes.LeastStack]; nil: all that a program has.
	StackLeft func(*event.Probe) (int, error)
	// CompareExchange reports whether the kernel supports atomic compare-and-exchange in BPF; nil: it does not.
	CompareExchange func() bool
	// Alone reports whether no two BPF programs that deliver events of a probe can overlap on one CPU; nil: they can.
	Alone func(*event.Probe) bool
	// CPUs is how many CPUs the kernel may have.
	CPUs int
	// MapKeys is how many keys a map has room for; 0 chooses by the size of the values.
	MapKeys uint32
	// Started is when the program began, on the clock of nsecs.
	Started uint64
}

// Plan is a program divided between the kernel and user space.
//
// A site runs as a whole on one side, with two exceptions: the kernel always evaluates the conjuncts of a predicate that it can
// evaluate, and only user space can print. A map lives on one side, so sites that share a map run on the same side.
type Plan struct {
	Program  *ir.Program
	Options  Options
	Sites    []*Site
	moments  []moment
	Maps     map[*ir.Map]*KernelMap // maps in the kernel
	userMaps map[*ir.Map]string     // why the other maps are not
	requests []probes.Request
	Codes    []*codegen.Code     // one for each request
	Parts    []*Part             // by the ID of the record
	Tracing  []string            // functions at which kernel stacks are cut
	Recorded map[ir.StackUse]int // where the stacks of the program are in a recording
	LeftOut  []ir.LeftOut        // dense probes that only wildcards name
	// questions are what the code asks about cgroups.
	questions []Question
	// recordAll reports that the predicate for events to record does not fit into the kernel.
	recordAll bool
}

// Site is a site and where it runs.
type Site struct {
	*ir.Site
	Clause *ir.Clause
	uses   *siteUses
	// InUser is why the site runs in user space; nil: it does not.
	InUser *Obstacle
	// tooLarge reports that the predicate does not fit into the kernel either.
	tooLarge bool
	// kernel are the conjuncts that run in the kernel. User are the others, each with the reason.
	kernel, User []Conjunct
}

// moment is a clause that no event triggers.
type moment struct {
	clause *ir.Clause
	uses   *siteUses
}

// Conjunct is one of the conditions that a predicate joins with &&.
type Conjunct struct {
	e   *ir.Expr
	Why *Obstacle // nil: it runs in the kernel
}

// Obstacle is why something cannot run in the kernel.
type Obstacle struct {
	Reason string
	span   syntax.Span
}

// Part is what user space runs of a site when a record arrives.
type Part struct {
	layout *event.Layout
	Site   *Site
	// Pred and Stmts are what is left to run; Prints reports that the event is printed.
	Pred   *ir.Expr
	Stmts  []ir.Stmt
	Prints bool
	// Stacks maps a stack to the value of the record that is its number.
	Stacks map[ir.StackUse]int
	// Piece is the record's place in the event's output; nil: the record is all of it.
	Piece *Piece
	// Shadow records are for the second run of a comparison, recorded ones for a file.
	Shadow, Recorded bool
}

// allFields are the columns if the user chose none.
type allFields struct{}

func (allFields) Fields(p *event.Probe) []*event.Field { return p.Fields }
func (allFields) Moment(*event.Probe) *event.Field     { return nil }

// New divides p. Sites that turn out not to fit into the kernel move to user space, together with the sites that share maps with
// them.
func New(p *ir.Program, o Options) (*Plan, error) {
	if o.Columns == nil {
		o.Columns = allFields{}
	}
	plan := &Plan{Program: p, Options: o}
	for _, c := range p.Clauses {
		for _, probe := range c.Probes {
			plan.Sites = append(plan.Sites, &Site{Site: c.Sites[probe], Clause: c, uses: usesOf(c.Sites[probe])})
		}
		if c.Kind != ir.OnEvent {
			plan.moments = append(plan.moments, moment{c, usesOf(c.Sites[nil])})
		}
	}
	plan.forbid()
	if o.Recorded {
		plan.divide()
		return plan, plan.findRecorded()
	}
	for {
		plan.divide()
		if err := plan.tooLate(); err != nil {
			return nil, err
		}
		plan.findAlone()
		again, err := plan.generate()
		if err == nil && !again {
			again, err = plan.holdBack()
		}
		if err != nil {
			return nil, err
		}
		if !again {
			return plan, nil
		}
	}
}

// generate makes the code of every probe. It returns true if a site did not fit and was moved to user space.
func (p *Plan) generate() (again bool, err error) {
	p.requests, p.Codes, p.Parts, p.Tracing, p.questions = nil, nil, nil, nil, nil
	for _, r := range p.wantedProbes() {
		code := codegen.Spec{
			Stack: maxStack, CmpXchg: p.comparesAndExchanges(), Ring: probes.RingName, Prefix: "t", Stops: p.stops(),
			Cut: p.cutOf(r.Probe), StackOf: r.Probe.StackOf, Within: p.within(r.Probe),
		}
		if p.Options.StackLeft != nil {
			code.Stack = probes.LeastStack
			code.StackLeft = func() (int, error) { return p.Options.StackLeft(r.Probe) }
		}
		code.Lost.Map, code.Lost.Offset = probes.LostCounter(r.Probe)
		var sites []*Site
		for _, b := range p.Sites {
			if b.Probe == r.Probe && argOf(b.Clause) == r.Arg {
				sites = append(sites, b)
			}
		}
		if p.Options.Compare {
			code.Parts = append(code.Parts, p.shadow(r.Probe, sites))
		}
		if p.Options.Record {
			code.Parts = append(code.Parts, p.recorded(r.Probe, sites))
		}
		before := len(code.Parts)
		for _, b := range sites {
			code.Parts = append(code.Parts, p.part(b, &code))
		}
		out, err := codegen.Generate(code)
		if limit, ok := err.(*codegen.LimitError); ok {
			i := limit.Part - before
			if i < 0 && p.Options.Record && !p.recordAll {
				p.recordAll = true
				return true, nil
			}
			if i < 0 || i >= len(sites) || !giveWay(sites, i, &Obstacle{Reason: limit.Reason}) {
				return false, fmt.Errorf("%s: %w", r.Probe, err)
			}
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.Probe, err)
		}
		r.Code, r.Counted, r.CountsFailures = probeCode(out, p.comment(sites)), p.Options.Counted, p.Options.CountsFailures
		p.requests = append(p.requests, r)
		p.Codes = append(p.Codes, out)
	}
	return false, nil
}

// within returns the sets of processes and of cgroups to which the clauses are restricted.
func (p *Plan) within(probe *event.Probe) (sets []codegen.Within) {
	if p.Options.Children {
		sets = append(sets, codegen.Within{Field: kernelField(probe.Field("pid")), Map: probes.MembersName, Size: probes.PIDs})
	}
	if p.Options.Below != "" {
		sets = append(sets, codegen.Within{Field: kernelField(probe.Field("cgroup")), Map: probes.CgroupsName})
	}
	return sets
}

// giveWay moves sites of a probe to user space after site i met a limit: first that site, then its predicate, then all other sites.
// It returns false if nothing is left to move.
func giveWay(sites []*Site, i int, why *Obstacle) bool {
	if b := sites[i]; !b.tooLarge {
		b.tooLarge = b.InUser != nil || b.Prints
		b.InUser = why
		return true
	}
	moved := false
	for _, b := range sites {
		if b.InUser == nil {
			b.InUser, moved = why, true
		}
	}
	return moved
}

// wantedProbes returns the probes of the program, each once, and profile once for each rate. A probe that no clause names in full is
// optional: it may be missing on the host. So is each probe if the program has chosen that.
func (p *Plan) wantedProbes() []probes.Request {
	var reqs []probes.Request
	for _, b := range p.Sites {
		arg := argOf(b.Clause)
		i := slices.IndexFunc(reqs, func(r probes.Request) bool { return r.Probe == b.Probe && r.Arg == arg })
		if i < 0 {
			i = len(reqs)
			reqs = append(reqs, probes.Request{Probe: b.Probe, Arg: arg, IfAvailable: true})
		}
		optional := p.Program.Missing != ir.MissingFails
		reqs[i].IfAvailable = reqs[i].IfAvailable && (!b.Clause.Named[b.Probe] || optional)
		reqs[i].OrNone = optional && p.Program.Missing != ir.MissingUnlessAll && len(p.moments) > 0
	}
	return reqs
}

// comparesAndExchanges asks the kernel only if a map or a stack needs to know.
func (p *Plan) comparesAndExchanges() bool {
	wanted := len(p.allStacks()) > 0
	for m := range p.Maps {
		if m.Agg != nil && m.Agg.Traits().Exchanges {
			wanted = true
		}
	}
	return wanted && p.Options.CompareExchange != nil && p.Options.CompareExchange()
}

// maxStack is the kernel's limit on the stack of a BPF program, in bytes.
const maxStack = 512

func (p *Plan) comment(sites []*Site) string {
	if len(sites) == 0 {
		return ""
	}
	return p.commentOf(sites[0])
}

// commentOf returns the place and the text of a clause, which the verifier quotes.
func (p *Plan) commentOf(b *Site) string {
	at := p.Program.Text.Error(syntax.Span{From: b.Clause.Span.From, To: b.Clause.Span.From}, "", "")
	return fmt.Sprintf("%s:%d: %s", at.File, at.Line, b.Clause)
}

func probeCode(c *codegen.Code, source string) *probes.Code {
	spans := func(in []codegen.Span) []probes.Span {
		out := make([]probes.Span, len(in))
		for i, s := range in {
			out[i] = probes.Span(s)
		}
		return out
	}
	return &probes.Code{Filter: c.Filter, Action: c.Action, Before: spans(c.Before), After: spans(c.After), Text: source}
}

// stops reports whether a site in the kernel ends the program.
func (p *Plan) stops() bool {
	return slices.ContainsFunc(p.Sites, func(b *Site) bool { return b.InUser == nil && b.uses.exits })
}

// part makes what the kernel runs of a site.
func (p *Plan) part(b *Site, code *codegen.Spec) codegen.Part {
	l := p.kernelizer(b, code)
	out := codegen.Part{Comment: p.commentOf(b)}
	for _, c := range b.kernel {
		e, _ := l.expr(c.e)
		out.Pred = combine(codegen.OpAnd, out.Pred, e)
		out.Late = out.Late || readsMap(c.e)
	}
	if b.InUser == nil && !b.Prints && len(b.User) == 0 {
		out.Body = l.body()
		return out
	}
	rest := &Part{Site: b, Stmts: b.Stmts, Prints: b.Prints}
	for _, c := range b.User {
		rest.Pred = conjoin(rest.Pred, c.e)
	}
	left := b.leftToUser()
	stacks := left.stacks()
	if p.Options.RecordStacks {
		stacks = afterRecorded(stacks)
	}
	out.Body = []codegen.Stmt{p.emit(rest, left.Fields(p.Options.Columns), rest.withStacks(stacks), l)}
	return out
}

func conjoin(a, b *ir.Expr) *ir.Expr {
	if a == nil {
		return b
	}
	return &ir.Expr{Op: ir.OpAnd, Args: []*ir.Expr{a, b}, Type: ir.Boolean, Optional: a.Optional || b.Optional}
}

// shadow sends every event with all fields that any of the sites reads.
func (p *Plan) shadow(probe *event.Probe, sites []*Site) codegen.Part {
	fields := map[*event.Field]bool{}
	for _, b := range sites {
		for _, f := range b.Fields(p.Options.Columns) {
			fields[f] = true
		}
	}
	s := &Part{Site: &Site{Site: &ir.Site{Probe: probe}}, Shadow: true}
	values := s.withStacks(stacksOf(sites))
	l := &kernelizer{plan: p, code: &codegen.Spec{}}
	return codegen.Part{Comment: "compare", Body: []codegen.Stmt{p.emit(s, slices.Collect(maps.Keys(fields)), values, l)}}
}

// recorded sends the events that any of the sites may want, with everything that a recording keeps.
func (p *Plan) recorded(probe *event.Probe, sites []*Site) codegen.Part {
	s := &Part{Site: &Site{Site: &ir.Site{Probe: probe}}, Recorded: true}
	var values []*ir.Expr
	if p.recordsStacks() {
		values = recordedStacks()
	}
	l := &kernelizer{plan: p, code: &codegen.Spec{}}
	return codegen.Part{
		Comment: "record", Pred: p.wanted(sites, l), Body: []codegen.Stmt{p.emit(s, slices.Clone(probe.Fields), s.withStacks(values), l)},
	}
}

// wanted returns a condition on events that holds if one of the sites may want the event; nil: always. It leaves out conjuncts that
// read maps: the replay evaluates them.
func (p *Plan) wanted(sites []*Site, l *kernelizer) *codegen.Expr {
	var some *codegen.Expr
	if p.recordAll {
		return nil
	}
	for _, b := range sites {
		var all *codegen.Expr
		for _, c := range b.kernel {
			if !readsMap(c.e) {
				e, _ := l.expr(c.e)
				all = combine(codegen.OpAnd, all, e)
			}
		}
		if all == nil {
			return nil
		}
		some = combine(codegen.OpOr, some, all)
	}
	return some
}

func readsMap(e *ir.Expr) (reads bool) {
	ir.WalkExpr(e, func(e *ir.Expr) { reads = reads || e.Map != nil })
	return reads
}

// combine joins a and b with an operator. a may be nil.
func combine(op codegen.Op, a, b *codegen.Expr) *codegen.Expr {
	if a == nil {
		return b
	}
	return &codegen.Expr{Op: op, Type: codegen.Type{Kind: codegen.Bool}, Args: []*codegen.Expr{a, b}}
}

// leftToUser returns the rest of a site that user space runs.
func (b *Site) leftToUser() *Site {
	rest := &Site{Site: &ir.Site{Probe: b.Probe, Stmts: b.Stmts, Prints: b.Prints}}
	for _, c := range b.User {
		rest.Pred = conjoin(rest.Pred, c.e)
	}
	return rest
}

// emit makes the record of a part, from fields of the event and values that the kernel computes.
func (p *Plan) emit(s *Part, fields []*event.Field, values []*ir.Expr, l *kernelizer) *codegen.Emit {
	slices.SortFunc(fields, func(a, b *event.Field) int {
		return slices.Index(s.Site.Probe.Fields, a) - slices.Index(s.Site.Probe.Fields, b)
	})
	types, code := make([]event.Type, len(values)), make([]*codegen.Expr, len(values))
	for i, v := range values {
		code[i], _ = l.expr(v)
		switch types[i] = v.Type; {
		case v.Type.Kind == format.Stack:
			types[i] = ir.Natural64
		case ir.NamingOf(v.Type) != nil:
			types[i] = ir.Integer64
		}
	}
	if s.Piece != nil {
		s.Piece.Run, s.Piece.Number = len(values), len(values)+1
		for _, op := range []codegen.Op{codegen.OpFrame, codegen.OpSent} {
			types, code = append(types, ir.Natural64), append(code, &codegen.Expr{Op: op, Type: codegen.Type{Kind: codegen.Uint}})
		}
	}
	s.layout = event.NewLayout(len(p.Parts), s.Site.Probe, fields, types)
	p.Parts = append(p.Parts, s)
	out := &codegen.Emit{ID: uint64(s.layout.ID), Size: s.layout.Size, Piece: s.Piece != nil}
	for _, c := range s.layout.Copies() {
		out.Copies = append(out.Copies, codegen.Copy(c))
	}
	for i, e := range code {
		to, presence := s.layout.Slot(i)
		out.Values = append(out.Values, codegen.Slot{Value: e, To: to, Presence: presence})
	}
	return out
}

// Requests returns the probes to attach, with their code.
func (p *Plan) Requests() []probes.Request { return p.requests }

// Questions returns what the code asks about cgroups.
func (p *Plan) Questions() []Question { return p.questions }

// RecordedLayouts returns the layouts of the records that [exec.Options.Record] gets.
func (p *Plan) RecordedLayouts() []*event.Layout {
	var out []*event.Layout
	for _, s := range p.Parts {
		if s.Recorded {
			out = append(out, s.layout)
		}
	}
	return out
}

// Layouts returns the layouts of the records that the code sends.
func (p *Plan) Layouts() []*event.Layout {
	out := make([]*event.Layout, len(p.Parts))
	for i, s := range p.Parts {
		out[i] = s.layout
	}
	return out
}

// argOf returns the argument that the clause gives its probes.
func argOf(c *ir.Clause) probes.Arg {
	switch {
	case c.Hz != 0:
		return probes.Rate(c.Hz)
	case c.Period != 0:
		return probes.Every(c.Period)
	}
	return nil
}

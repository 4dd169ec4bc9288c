package lang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"trace/lang/codegen"
	"trace/lang/syntax"
	"trace/probes"
)

// PlanOptions say what a plan may use.
type PlanOptions struct {
	// NoKernel keeps every step in user space.
	NoKernel bool
	// Rejected are probes for which the kernel did not accept generated code; their clauses run in user space.
	Rejected map[*probes.Probe]bool
	// Compare has all events of all clauses sent to user space besides, so that a second, user-space run of the program can
	// follow the first.
	Compare bool
	// Counted has the programs count the events that pass and those that do not.
	Counted bool
	// StackLeft returns how many bytes of stack generated code for a probe may use.
	StackLeft func(*probes.Probe) (int, error)
	// CompareExchange tells whether the kernel has an atomic compare-and-exchange for BPF; nil: it does not.
	CompareExchange func() bool
	// Alone tells whether no two programs that deliver events of a probe can overlap on one CPU; nil: they may.
	Alone func(*probes.Probe) bool
	// CPUs that the kernel may have.
	CPUs int
	// MapEntries is how many keys a map has room for; 0 chooses by the size of the values.
	MapEntries uint32
	// Started is when the program began, as nsecs tells it.
	Started uint64
}

// Plan is a program that is divided between the kernel and user space.
//
// A body, which is a clause for the events of one probe, runs as a whole on one side, but for the conjuncts of its predicate that the
// kernel can do, which always run there, and for what only user space can do: printing. A map lives on one side, so bodies that share
// one do, too.
type Plan struct {
	program  *Program
	options  PlanOptions
	parts    []*part
	maps     map[*mapInfo]*kernelMap // those that live in the kernel
	userMaps map[*mapInfo]string     // why the others do not
	requests []probes.Request
	codes    []*codegen.Code // of the requests
	sites    []*site         // by the ID of the record
}

// part is a body and where it runs.
type part struct {
	*body
	clause *Clause
	// inUser says why the body runs in user space, if it does.
	inUser *obstacle
	// tooLarge says that the predicate does not fit into the kernel either.
	tooLarge bool
	// kernel are the conjuncts that run in the kernel, user those that do not, with the reason of each.
	kernel, user []conjunct
}

type conjunct struct {
	e   *expr
	why *obstacle // nil in the kernel
}

// obstacle is why something cannot run in the kernel.
type obstacle struct {
	reason string
	span   syntax.Span
}

// kernelMap is a map in the kernel.
type kernelMap struct {
	*mapInfo
	code *codegen.Map
}

// site is a place of the program that sends records: what user space does with them.
type site struct {
	layout *probes.Layout
	part   *part
	// pred and stmts are what is left to do; prints says that the event is printed.
	pred   *expr
	stmts  []stmt
	prints bool
	// shadow records are for the second run of a comparison.
	shadow bool
}

// NewPlan divides p. Steps that turn out not to fit into the kernel move to user space, with all that shares maps with them.
func NewPlan(p *Program, o PlanOptions) (*Plan, error) {
	plan := &Plan{program: p, options: o}
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			plan.parts = append(plan.parts, &part{body: c.bodies[probe], clause: c})
		}
	}
	plan.forbid()
	for {
		plan.divide()
		plan.findAlone()
		again, err := plan.generate()
		if err != nil {
			return nil, err
		}
		if !again {
			return plan, nil
		}
	}
}

// forbid finds the bodies that have to run in user space, whatever the kernel can do.
func (p *Plan) forbid() {
	for _, b := range p.parts {
		switch {
		case p.options.NoKernel:
			b.inUser = &obstacle{reason: "--no-kernel"}
		case p.options.Rejected[b.probe]:
			b.inUser = &obstacle{reason: "the kernel rejected the generated code"}
		}
	}
}

// divide settles where each body and each map is: the least set in user space that the obstacles allow.
func (p *Plan) divide() {
	p.placeMaps()
	for {
		moved := false
		for _, b := range p.parts {
			b.split(p)
			if b.inUser == nil {
				b.inUser = p.hindrance(b)
			}
			if b.inUser == nil {
				continue
			}
			for _, m := range b.maps() {
				if p.maps[m] != nil {
					delete(p.maps, m)
					p.userMaps[m] = p.name(b.clause) + " runs in user space"
					moved = true
				}
			}
		}
		if stop := p.exitInUserSpace(); stop != nil {
			for _, b := range p.parts {
				if b.inUser == nil {
					b.inUser, moved = stop, true
				}
			}
		}
		if !moved {
			return
		}
	}
}

// findAlone finds the aggregations that the programs of only one probe update, if those cannot overlap.
func (p *Plan) findAlone() {
	for m, k := range p.maps {
		if m.agg == nil || k.code.Shared || p.options.Alone == nil {
			continue
		}
		type source struct {
			probe *probes.Probe
			hz    int
		}
		sources := map[source]bool{}
		for _, b := range p.parts {
			if updates(b.stmts, m) {
				sources[source{b.probe, b.clause.hz}] = true
			}
		}
		for s := range sources {
			k.code.Alone = len(sources) == 1 && p.options.Alone(s.probe)
		}
	}
}

// exitInUserSpace says whether exit() is decided there: then nothing may count on in the kernel meanwhile.
func (p *Plan) exitInUserSpace() *obstacle {
	for _, b := range p.parts {
		if b.inUser != nil && exits(b.stmts) {
			return &obstacle{reason: "exit() of " + p.name(b.clause) + " runs in user space, and nothing may be counted after it"}
		}
	}
	return nil
}

func exits(stmts []stmt) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		if call, ok := s.(*callStmt); ok && call.fn == "exit" {
			found = true
		}
	})
	return found
}

// name of the clause in explanations: its number.
func (p *Plan) name(c *Clause) string {
	return fmt.Sprintf("clause %d", slices.Index(p.program.clauses, c)+1)
}

// placeMaps begins with all maps in the kernel that may be there.
func (p *Plan) placeMaps() {
	p.maps, p.userMaps = map[*mapInfo]*kernelMap{}, map[*mapInfo]string{}
	for _, m := range p.program.maps {
		if why := p.keepsOut(m); why != "" {
			p.userMaps[m] = why
			continue
		}
		p.maps[m] = &kernelMap{mapInfo: m, code: p.newMap(m)}
	}
}

// keepsOut says why a map has to be in user space, or returns "".
func (p *Plan) keepsOut(m *mapInfo) string {
	if p.options.NoKernel {
		return "--no-kernel"
	}
	inEvents := false
	for _, b := range p.parts {
		inEvents = inEvents || slices.Contains(b.maps(), m)
		if why := b.needsExact(m); why != "" {
			return why
		}
		if m.agg != nil && b.removes(m) && (p.isCleared(m) || m.agg.Func == codegen.Min || m.agg.Func == codegen.Max) {
			return "its keys are deleted one by one, and there is no telling then what was added since the last print or clear"
		}
		if m.agg != nil && b.asks(m) && p.isCleared(m) {
			return "has_key(" + m.name + ") at an event, and a clear, which leaves the keys in the kernel"
		}
	}
	if !inEvents {
		return "only begin, end and interval clauses use it"
	}
	for _, c := range p.program.clauses {
		if c.kind == onEvent {
			continue
		}
		for _, b := range c.bodies {
			if updates(b.stmts, m) {
				return "not only events are aggregated in it"
			}
			if c.kind == onInterval && modifies(b.stmts, m) {
				return "an interval clause changes it, which is not one step there"
			}
		}
	}
	return ""
}

// needsExact says why an event clause has to see the map at that very moment: then it has to be where the clause's output is made.
func (b *part) needsExact(m *mapInfo) string {
	why := ""
	walkStmts(b.stmts, func(s stmt) {
		if call, ok := s.(*callStmt); ok && call.m == m && (call.fn != "delete" || call.key == nil) {
			why = call.fn + "(" + m.name + ") at an event wants the map as it is then"
		}
	})
	b.walkExprs(func(e *expr) {
		switch {
		case e.m != m:
		case e.op == opLen:
			why = "len(" + m.name + ") at an event counts its keys"
		case e.op == opLookup && m.agg != nil:
			why = m.name + " is read at an event, and in the kernel it is in parts, one for each CPU"
		}
	})
	if why == "" && b.readsAndSets(m) {
		why = "a clause reads and sets it, which is not one step in the kernel"
	}
	return why
}

// readsAndSets tells whether the body sets a map that it reads, in more than one step and for a key that another CPU may set
// meanwhile. A key with the thread id is the thread's own.
func (b *part) readsAndSets(m *mapInfo) bool {
	reads, sets := false, false
	b.walkExprs(func(e *expr) {
		if e.m == m && (e.op == opLookup || e.op == opHasKey) && !ownKey(e.args) {
			reads = true
		}
	})
	walkStmts(b.stmts, func(s stmt) {
		if set, ok := s.(*setStmt); ok && set.m == m && set.op == "=" && !ownKey(set.key) {
			sets = true
		}
	})
	return reads && sets
}

func ownKey(key []*expr) bool {
	return slices.ContainsFunc(key, func(e *expr) bool {
		if e.op == opSigned {
			e = e.args[0]
		}
		return e.op == opField && e.field.Common && e.field.Name == "tid"
	})
}

// removes tells whether the body deletes keys of a map.
func (b *part) removes(m *mapInfo) bool {
	found := false
	walkStmts(b.stmts, func(s stmt) {
		call, ok := s.(*callStmt)
		found = found || ok && call.fn == "delete" && call.m == m
	})
	return found
}

// asks tells whether the body asks for keys of a map.
func (b *part) asks(m *mapInfo) bool {
	found := false
	b.walkExprs(func(e *expr) { found = found || e.op == opHasKey && e.m == m })
	return found
}

func (p *Plan) isCleared(m *mapInfo) bool {
	found := false
	for _, c := range p.program.clauses {
		for _, b := range c.bodies {
			walkStmts(b.stmts, func(s stmt) {
				call, ok := s.(*callStmt)
				found = found || ok && (call.fn == "clear" || call.fn == "zero") && call.m == m
			})
		}
	}
	return found
}

// updates tells whether statements add to an aggregation.
func updates(stmts []stmt, m *mapInfo) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		update, ok := s.(*updateStmt)
		found = found || ok && update.m == m
	})
	return found
}

// modifies tells whether statements change a scalar by what it was.
func modifies(stmts []stmt, m *mapInfo) bool {
	found := false
	walkStmts(stmts, func(s stmt) {
		if set, ok := s.(*setStmt); ok && set.m == m {
			found = found || set.op == "+"
			for _, v := range set.value {
				walkExpr(v, func(e *expr) { found = found || e.m == m })
			}
		}
	})
	return found
}

// newMap describes a map to the code generator.
func (p *Plan) newMap(m *mapInfo) *codegen.Map {
	out := &codegen.Map{
		Name: fmt.Sprintf("at_%.12s", strings.TrimPrefix(m.name, "@")), Index: slices.Index(p.program.maps, m),
		Key: rowOf(m.key), Agg: m.agg, LRU: m.lru, Entries: 1,
	}
	if m.agg == nil {
		out.Value = rowOf(m.value)
	}
	out.Name = fmt.Sprintf("at%d_%.10s", out.Index, strings.TrimPrefix(m.name, "@"))
	out.Shared = m.agg != nil && p.valueSize(m)*p.options.CPUs > maxPerCPU
	if len(m.key) > 0 {
		out.Entries = cmp.Or(m.entries, p.options.MapEntries, p.defaultEntries(m, out.Shared))
	}
	return out
}

// maxPerCPU bytes of all CPUs' parts of one value: what is larger all CPUs share. A quantile takes 4.7 KB, on 256 CPUs 1.2 MB a key.
const maxPerCPU = 256 << 10

// valueSize of a map in bytes.
func (p *Plan) valueSize(m *mapInfo) int {
	if m.agg != nil {
		return 8 * m.agg.KernelWords()
	}
	return rowOf(m.value).Size
}

// defaultEntries keeps a map within 64 MiB.
func (p *Plan) defaultEntries(m *mapInfo, shared bool) uint32 {
	const budget, fewest, most = 64 << 20, 256, 4096
	value := p.valueSize(m)
	if m.agg != nil && !shared {
		value *= p.options.CPUs
	}
	return uint32(min(max(budget/(value+rowOf(m.key).Size+entryOverhead), fewest), most))
}

// entryOverhead is what a hash keeps for each key besides key and value: struct htab_elem and its place in a bucket.
const entryOverhead = 64

// bytes that a map takes in the kernel.
func (p *Plan) bytes(m *kernelMap) uint64 {
	value := p.valueSize(m.mapInfo)
	if m.agg != nil && !m.code.Shared {
		value *= p.options.CPUs
	}
	if len(m.key) == 0 {
		return uint64(value)
	}
	return uint64(m.code.Entries) * uint64(value+m.code.Key.Size+entryOverhead)
}

// MapBytes is what all maps take in the kernel.
func (p *Plan) MapBytes() uint64 {
	var n uint64
	for _, m := range p.maps {
		n += p.bytes(m)
	}
	return n
}

func rowOf(columns []column) codegen.Row {
	cols := make([]codegen.Column, len(columns))
	for i, c := range columns {
		cols[i] = codegen.Column{Type: kernelType(c.typ), Optional: c.optional}
	}
	return codegen.NewRow(cols...)
}

func kernelType(t probes.Type) codegen.Type {
	switch t.Kind {
	case probes.Int:
		return codegen.Type{Kind: codegen.Int}
	case probes.Bool:
		return codegen.Type{Kind: codegen.Bool}
	case probes.String:
		return codegen.Type{Kind: codegen.String, Size: max(t.Size, 1)}
	case probes.GID:
		return codegen.Type{Kind: codegen.Bytes, Size: t.Size}
	}
	return codegen.Type{Kind: codegen.Uint}
}

// split divides the conjuncts of the predicate.
func (b *part) split(p *Plan) {
	b.kernel, b.user = nil, nil
	l := p.kernelizer(b, nil)
	for _, e := range conjuncts(b.pred) {
		c := conjunct{e: e}
		if b.tooLarge || p.options.NoKernel || p.options.Rejected[b.probe] {
			c.why = b.inUser
		} else {
			_, c.why = l.expr(e)
		}
		if c.why == nil {
			b.kernel = append(b.kernel, c)
		} else {
			b.user = append(b.user, c)
		}
	}
}

// conjuncts of a predicate: an event passes it if it passes each of them.
func conjuncts(e *expr) []*expr {
	switch {
	case e == nil:
		return nil
	case e.op == "&&":
		return append(conjuncts(e.args[0]), conjuncts(e.args[1])...)
	}
	return []*expr{e}
}

// hindrance says what of a body cannot run in the kernel.
func (p *Plan) hindrance(b *part) *obstacle {
	for _, c := range b.user {
		reads := false
		walkExpr(c.e, func(e *expr) { reads = reads || e.m != nil })
		if reads || len(b.stmts) > 0 {
			return c.why
		}
	}
	_, why := p.kernelizer(b, nil).stmts(b.stmts)
	return why
}

// generate makes the code of every probe. It returns true if a body did not fit and was moved to user space.
func (p *Plan) generate() (again bool, err error) {
	p.requests, p.codes, p.sites = nil, nil, nil
	for _, r := range p.program.requests() {
		code := codegen.Program{
			Stack: maxStack, CmpXchg: p.comparesAndExchanges(), Ring: probes.RingName, Prefix: "t", Stops: p.stops(),
		}
		if p.options.StackLeft != nil {
			if code.Stack, err = p.options.StackLeft(r.Probe); err != nil {
				return false, err
			}
		}
		code.Lost.Map, code.Lost.Offset = r.Probe.LostCounter()
		var parts []*part
		for _, b := range p.parts {
			if b.probe == r.Probe && b.clause.hz == r.Hz {
				parts = append(parts, b)
			}
		}
		if p.options.Compare {
			code.Clauses = append(code.Clauses, p.shadow(r.Probe, parts))
		}
		for _, b := range parts {
			code.Clauses = append(code.Clauses, p.clause(b, &code))
		}
		out, err := codegen.Generate(code)
		if limit, ok := err.(*codegen.LimitError); ok {
			i := limit.Clause
			if p.options.Compare {
				i--
			}
			if i < 0 || i >= len(parts) || !giveWay(parts, i, &obstacle{reason: limit.Reason}) {
				return false, fmt.Errorf("%s: %w", r.Probe, err)
			}
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.Probe, err)
		}
		r.Code, r.Counted = probeCode(out, p.source(parts)), p.options.Counted
		p.requests = append(p.requests, r)
		p.codes = append(p.codes, out)
	}
	return false, nil
}

// giveWay moves to user space what it can of the bodies of a probe, of which number i met a limit: that body, then its predicate, then
// all the others. It returns false if all of that is there.
func giveWay(parts []*part, i int, why *obstacle) bool {
	if b := parts[i]; !b.tooLarge {
		b.tooLarge = b.inUser != nil || b.prints
		b.inUser = why
		return true
	}
	moved := false
	for _, b := range parts {
		if b.inUser == nil {
			b.inUser, moved = why, true
		}
	}
	return moved
}

// requests are the probes of the program, each once, and profile once for each frequency. One that no clause calls by its name may be
// left out on a host that does not have it.
func (p *Program) requests() []probes.Request {
	var reqs []probes.Request
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			i := slices.IndexFunc(reqs, func(r probes.Request) bool { return r.Probe == probe && r.Hz == c.hz })
			if i < 0 {
				i = len(reqs)
				reqs = append(reqs, probes.Request{Probe: probe, Hz: c.hz, IfAvailable: true})
			}
			reqs[i].IfAvailable = reqs[i].IfAvailable && !c.named[probe]
		}
	}
	return reqs
}

// comparesAndExchanges asks the kernel only if some map wants to know.
func (p *Plan) comparesAndExchanges() bool {
	for m := range p.maps {
		if m.agg != nil && (m.agg.Func == codegen.Min || m.agg.Func == codegen.Max) {
			return p.options.CompareExchange != nil && p.options.CompareExchange()
		}
	}
	return false
}

// maxStack is the limit of the kernel on the stack of a BPF program.
const maxStack = 512

func (p *Plan) source(parts []*part) string {
	if len(parts) == 0 {
		return ""
	}
	return p.sourceOf(parts[0])
}

// sourceOf tells the place and the text of a clause, as the verifier quotes it.
func (p *Plan) sourceOf(b *part) string {
	at := p.program.source.Error(syntax.Span{From: b.clause.span.From, To: b.clause.span.From}, "", "")
	return fmt.Sprintf("%s:%d: %s", at.File, at.Line, b.clause)
}

func probeCode(c *codegen.Code, source string) *probes.Code {
	spans := func(in []codegen.Span) []probes.Span {
		out := make([]probes.Span, len(in))
		for i, s := range in {
			out[i] = probes.Span(s)
		}
		return out
	}
	return &probes.Code{Filter: c.Filter, Action: c.Action, Before: spans(c.Before), After: spans(c.After), Source: source}
}

// stops tells whether some body in the kernel ends the program.
func (p *Plan) stops() bool {
	return slices.ContainsFunc(p.parts, func(b *part) bool { return b.inUser == nil && exits(b.stmts) })
}

// clause makes what the kernel does for a body.
func (p *Plan) clause(b *part, code *codegen.Program) codegen.Clause {
	l := p.kernelizer(b, code)
	out := codegen.Clause{Source: p.sourceOf(b)}
	for _, c := range b.kernel {
		e, _ := l.expr(c.e)
		if out.Pred == nil {
			out.Pred = e
		} else {
			out.Pred = &codegen.Expr{Op: codegen.OpAnd, Type: codegen.Type{Kind: codegen.Bool}, Args: []*codegen.Expr{out.Pred, e}}
		}
		walkExpr(c.e, func(e *expr) { out.Late = out.Late || e.m != nil })
	}
	if b.inUser == nil && !b.prints && len(b.user) == 0 {
		out.Body, _ = l.stmts(b.stmts)
		return out
	}
	rest := &site{part: b, stmts: b.stmts, prints: b.prints}
	for _, c := range b.user {
		rest.pred = conjoin(rest.pred, c.e)
	}
	out.Body = []codegen.Stmt{p.emit(rest, b.readByUser(), nil, l)}
	return out
}

func conjoin(a, b *expr) *expr {
	if a == nil {
		return b
	}
	return &expr{op: "&&", args: []*expr{a, b}, typ: boolean, optional: a.optional || b.optional}
}

// shadow sends every event with all that any of the bodies reads.
func (p *Plan) shadow(probe *probes.Probe, parts []*part) codegen.Clause {
	fields := map[*probes.Field]bool{}
	for _, b := range parts {
		for _, f := range b.fields() {
			fields[f] = true
		}
	}
	s := &site{part: &part{body: &body{probe: probe}}, shadow: true}
	return codegen.Clause{Source: "compare", Body: []codegen.Stmt{p.emit(s, slices.Collect(maps.Keys(fields)), nil, nil)}}
}

// readByUser are the fields that user space reads of a body that it runs.
func (b *part) readByUser() []*probes.Field {
	rest := &part{body: &body{probe: b.probe, stmts: b.stmts, prints: b.prints}}
	for _, c := range b.user {
		rest.pred = conjoin(rest.pred, c.e)
	}
	return rest.fields()
}

// emit makes the record of a site, with fields of the event and values that the kernel computes.
func (p *Plan) emit(s *site, fields []*probes.Field, values []*expr, l *kernelizer) *codegen.Emit {
	slices.SortFunc(fields, func(a, b *probes.Field) int {
		return slices.Index(s.part.probe.Fields, a) - slices.Index(s.part.probe.Fields, b)
	})
	types := make([]probes.Type, len(values))
	for i, v := range values {
		types[i] = v.typ
	}
	s.layout = probes.NewLayout(len(p.sites), s.part.probe, fields, types)
	p.sites = append(p.sites, s)
	out := &codegen.Emit{ID: uint64(s.layout.ID), Size: s.layout.Size}
	for _, c := range s.layout.Copies() {
		out.Copies = append(out.Copies, codegen.Copy(c))
	}
	for i, v := range values {
		e, _ := l.expr(v)
		to, presence := s.layout.Slot(i)
		out.Values = append(out.Values, codegen.Slot{Value: e, To: to, Presence: presence})
	}
	return out
}

// fields that the body reads; those that are printed for the event included.
func (b *part) fields() []*probes.Field {
	if b.prints {
		return slices.Clone(b.probe.Fields)
	}
	found := map[*probes.Field]bool{}
	b.walkExprs(func(e *expr) {
		if e.field != nil {
			found[e.field] = true
		}
	})
	return slices.Collect(maps.Keys(found))
}

// maps that the body uses, each once.
func (b *part) maps() []*mapInfo {
	var found []*mapInfo
	add := func(m *mapInfo) {
		if m != nil && !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	b.walkExprs(func(e *expr) { add(e.m) })
	walkStmts(b.stmts, func(s stmt) {
		switch s := s.(type) {
		case *setStmt:
			add(s.m)
		case *updateStmt:
			add(s.m)
		case *callStmt:
			add(s.m)
		}
	})
	return found
}

// walkExprs visits every node of the predicate and the statements.
func (b *body) walkExprs(visit func(*expr)) {
	walkExpr(b.pred, visit)
	walkStmts(b.stmts, func(s stmt) {
		for _, e := range exprsOf(s) {
			walkExpr(e, visit)
		}
	})
}

// exprsOf returns the expressions of a statement, without those of statements in it.
func exprsOf(s stmt) []*expr {
	switch s := s.(type) {
	case *setStmt:
		return append(slices.Clone(s.key), s.value...)
	case *updateStmt:
		if s.arg == nil {
			return s.key
		}
		return append(slices.Clone(s.key), s.arg)
	case *letStmt:
		return []*expr{s.value}
	case *ifStmt:
		return []*expr{s.cond}
	case *forStmt:
		if s.m == nil {
			return []*expr{s.lo, s.hi}
		}
	case *callStmt:
		return append(slices.Clone(s.key), s.args...)
	}
	return nil
}

func walkExpr(e *expr, visit func(*expr)) {
	if e == nil {
		return
	}
	visit(e)
	for _, a := range e.args {
		walkExpr(a, visit)
	}
}

// walkStmts visits statements and those in them.
func walkStmts(stmts []stmt, visit func(stmt)) {
	for _, s := range stmts {
		visit(s)
		switch s := s.(type) {
		case *ifStmt:
			walkStmts(s.then, visit)
			walkStmts(s.els, visit)
		case *forStmt:
			walkStmts(s.body, visit)
		}
	}
}

// Requests are the probes to attach, with their code.
func (p *Plan) Requests() []probes.Request { return p.requests }

// Layouts of the records that the code sends.
func (p *Plan) Layouts() []*probes.Layout {
	out := make([]*probes.Layout, len(p.sites))
	for i, s := range p.sites {
		out[i] = s.layout
	}
	return out
}

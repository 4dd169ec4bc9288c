package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
	"trace/probes/symbols"
)

// Options configure a run.
type Options struct {
	// Sink takes what the program prints.
	Sink Sink
	// Shadow takes the output of the second run of a comparison, which is in user space.
	Shadow Sink
	// Muted discards the output of begin clauses, for a program that has begun before.
	Muted bool
	// Unshown maps are not printed at the end: the caller shows Tables and Profiles.
	Unshown bool
	// Now returns the time on the clock of nsecs.
	Now func() uint64
	// Share returns which part of the events of a sampled map was seen from one time to another, on the clock of Now; ok is false if none
	// could be seen. It is needed if the program has such maps.
	Share func(from, to uint64) (share float64, ok bool)
	// Keep takes the events that clauses without a body would print; nil: they are printed.
	Keep func(*event.Event) error
	// Warn takes what the program reports to the user.
	Warn func(warning bool, text string)
	// Record takes the events that [plan.Options.Record] sends.
	Record func(*event.Event) error
	// Count is at how many events something is printed at most; 0: at all.
	Count uint64
	// Context ends when the run does.
	Context context.Context
	// Interrupted ends when the user interrupts the run, also after its end; nil: Context.
	Interrupted context.Context
	// Cut ends when nobody waits longer for what the run has to do: clauses end in their loops. nil: never. End clauses that begin later run
	// to their ends.
	Cut context.Context
	// Unnamed ends when nobody waits for names of functions; nil: never.
	Unnamed context.Context
	// Names are shared with other runs; nil: the run has its own. Hurry means that nobody waits for names: what has none in time is an address.
	Names *symbols.Names
	Hurry bool
}

// Run is one run of a plan: its maps and its work in user space. Its methods may be called from several goroutines.
type Run struct {
	plan *plan.Plan
	mu   sync.Mutex

	muted     bool
	unshown   bool
	machine   *machine
	shadow    *machine // nil except in a comparison
	record    func(*event.Event) error
	kernel    map[string]*ebpf.Map
	halves    map[string][2]*ebpf.Map // the maps that take turns
	turns     turns
	stacks    *stackStore // nil if the program captures no stacks
	symbols   *symbolTables
	patience  *patience
	parts     []*siteRun
	sites     map[*event.Probe][]*siteRun // whole sites, for the shadow and for recorded events
	moments   map[*ir.Clause]*block       // clauses that no event triggers
	questions map[string]Answer           // by the names of their maps
	pieces    incomplete
	// rejected counts records that fail the conjuncts evaluated in user space.
	rejected map[*event.Probe]uint64
	// busy is the clause that runs, if no event triggers it.
	busy atomic.Pointer[ir.Clause]
	// cut are the clauses that were cut short.
	cut []string
}

// siteRun is a compiled site, or the part of it that user space runs.
type siteRun struct {
	pred     *evaluator // nil: passes
	block    *block
	shadow   bool
	recorded bool
	stacks   map[ir.StackUse]int
	scope    scope // of one event after the other
}

// Start creates the maps of a plan. Close releases them.
func Start(p *plan.Plan, o Options) (*Run, error) {
	r := &Run{plan: p, muted: o.Muted, unshown: o.Unshown, record: o.Record, kernel: map[string]*ebpf.Map{}, halves: map[string][2]*ebpf.Map{}, moments: map[*ir.Clause]*block{}, rejected: map[*event.Probe]uint64{},
		pieces: incomplete{all: map[execution]*pieces{}}}
	err := r.start(o)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Run) start(o Options) error {
	if err := r.createMaps(); err != nil {
		return err
	}
	if o.Names == nil {
		o.Names = symbols.NewNames(1)
	}
	if o.Cut == nil {
		o.Cut = context.Background()
	}
	if o.Unnamed == nil {
		o.Unnamed = context.Background()
	}
	r.patience = newPatience(o.Context, o.Interrupted, o.Unnamed, o.Hurry)
	if err := r.openStacks(o); err != nil {
		return err
	}
	var err error
	if r.symbols, err = openSymbols(o.Names, r.patience, r.plan.Program); err != nil {
		return err
	}
	r.machine = r.newMachine(o, o.Sink, r.store)
	if o.Warn != nil {
		r.machine.warn = o.Warn
	}
	if r.plan.Options.Compare {
		r.shadow = r.newMachine(o, o.Shadow, func(m *ir.Map) mapStore { return r.userStore(m) })
	}
	return r.compile()
}

func (r *Run) newMachine(o Options, sink Sink, store func(*ir.Map) mapStore) *machine {
	stores := map[*ir.Map]mapStore{}
	for _, m := range r.plan.Program.Maps {
		stores[m] = store(m)
	}
	return &machine{
		stacks: r.stacks, search: r.patience.search, stores: stores, sink: sink, keep: o.Keep, clock: o.Now, share: o.Share, started: r.plan.Options.Started, command: r.plan.Options.Command,
		symbols: r.symbols, ctx: o.Cut, most: o.Count, warn: func(bool, string) {},
	}
}

// store returns the store of a map, where the plan puts it.
func (r *Run) store(m *ir.Map) mapStore {
	k := r.plan.Maps[m]
	if k == nil {
		return r.userStore(m)
	}
	if !k.Code.Turns {
		return &kernelStore{KernelMap: k, m: r.kernel[k.Code.Name]}
	}
	s := &turnStore{userStore: newUserStore(m, k.Code.MaxKeys), turns: &r.turns}
	for i, half := range r.halves[k.Code.Name] {
		s.halves[i] = &kernelStore{KernelMap: k, m: half, sets: r.halves[k.Code.SetsName()][i]}
	}
	r.turns.all = append(r.turns.all, s)
	return s
}

// userStore keeps a map in user space, with room for as many keys as it would have in the kernel.
func (r *Run) userStore(m *ir.Map) *userStore {
	return newUserStore(m, r.plan.NewMap(m).MaxKeys)
}

// compile prepares what user space evaluates.
func (r *Run) compile() error {
	for _, s := range r.plan.Parts {
		run, err := compileSite(&ir.Site{Probe: s.Site.Probe, Pred: s.Pred, Stmts: s.Stmts, Prints: s.Prints})
		if err != nil {
			return err
		}
		run.shadow, run.recorded, run.stacks = s.Shadow, s.Recorded, s.Stacks
		r.parts = append(r.parts, run)
	}
	if r.shadow != nil || r.plan.Options.Recorded {
		r.sites = map[*event.Probe][]*siteRun{}
		for _, b := range r.plan.Sites {
			run, err := compileSite(b.Site)
			if err != nil {
				return err
			}
			r.sites[b.Probe] = append(r.sites[b.Probe], run)
		}
	}
	for _, c := range r.plan.Program.Clauses {
		if c.Kind == ir.OnEvent {
			continue
		}
		block, err := compileBody(c.Sites[nil])
		if err != nil {
			return err
		}
		r.moments[c] = block
	}
	var err error
	r.questions, err = answersTo(r.plan.Questions())
	return err
}

// compileSite keeps the predicate separate because the run counts whether it holds.
func compileSite(b *ir.Site) (run *siteRun, err error) {
	run = &siteRun{}
	if b.Pred != nil {
		if run.pred, err = newEvaluator(b.Pred); err != nil {
			return nil, err
		}
	}
	run.block, err = compileBody(&ir.Site{Probe: b.Probe, Stmts: b.Stmts, Prints: b.Prints})
	return run, err
}

// Maps returns the maps that the code refers to, for [probes.AttachOptions].
func (r *Run) Maps() map[string]*ebpf.Map { return r.kernel }

// Close releases the maps.
func (r *Run) Close() error {
	errs := []error{r.stacks.close(), r.symbols.close(), r.turns.fence.close()}
	for _, m := range r.kernel {
		errs = append(errs, m.Close())
	}
	for _, halves := range r.halves {
		errs = append(errs, halves[0].Close(), halves[1].Close())
	}
	return errors.Join(errs...)
}

// Begin runs the begin clauses. The caller attaches BPF programs after it.
func (r *Run) Begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.at(ir.OnBegin, func(s *setting) {
		if r.muted {
			s.mute()
		}
	}); err != nil {
		return err
	}
	for _, m := range r.machines() {
		m.past = m.stopped // no event comes before the begin clauses
	}
	return r.turns.plant()
}

// End runs the end clauses. It prints all maps, unless [Options.Unshown] or a setting of the program hides them. The caller detaches BPF
// programs before it.
func (r *Run) End() error {
	defer r.lock()()
	if err := r.turns.fence.wait(); err != nil { // a BPF program may still be running after it was detached
		return err
	}
	whole := r.machine.ctx.Err() != nil
	if err := r.at(ir.OnEnd, func(s *setting) {
		if whole { // what was cut short are the clauses before them
			s.ctx = context.Background()
		}
	}); err != nil {
		return err
	}
	for _, m := range r.machines() {
		if !r.unshown && !r.plan.Program.Silent {
			if err := r.showAll(m, m.sink); err != nil {
				return err
			}
		}
		m.ended = m.now() // for PrintMap, later
	}
	return nil
}

// Show prints all maps to a sink, like End, while the program continues.
func (r *Run) Show(to Sink) error {
	defer r.lock()()
	return r.showAll(r.machine, to)
}

// showAll prints all maps, in the order of their names.
func (r *Run) showAll(m *machine, to Sink) error {
	all := slices.Clone(r.plan.Program.Maps)
	slices.SortFunc(all, func(a, b *ir.Map) int { return strings.Compare(a.Name, b.Name) })
	for _, info := range all {
		silent, err := m.silent(info)
		if err == nil && !silent {
			err = m.show(info, to, ir.MapOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// show prints what a map holds.
func (m *machine) show(info *ir.Map, to Sink, o ir.MapOptions) error {
	now := m.now()
	t, err := m.table(info, now, o)
	if err != nil {
		return err
	}
	return to.Map(result.At(now), t)
}

func (r *Run) machines() []*machine {
	if r.shadow != nil {
		return []*machine{r.machine, r.shadow}
	}
	return []*machine{r.machine}
}

// at runs the clauses of a kind. change modifies their setting.
func (r *Run) at(kind ir.ClauseKind, change func(*setting)) error {
	for _, c := range r.plan.Program.Clauses {
		if c.Kind != kind {
			continue
		}
		if err := r.moment(c, r.machine.now(), change); err != nil {
			return err
		}
	}
	return nil
}

// lock begins a moment: until unlock, everything that reads or empties maps sees them as they are at one time.
func (r *Run) lock() (unlock func()) {
	r.mu.Lock()
	r.turns.settled = false
	return r.mu.Unlock
}

// moment runs a clause that no event triggers, at nsecs.
func (r *Run) moment(c *ir.Clause, nsecs uint64, change func(*setting)) error {
	r.busy.Store(c)
	defer r.busy.Store(nil)
	for _, m := range r.machines() {
		sc := &scope{setting: m.setting(nsecs)}
		change(&sc.setting)
		if err := r.unlessCut(c.Heading(), m.run(r.moments[c], sc)); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// unlessCut returns the error of a clause, or nil if the clause was cut short, which the run then knows.
func (r *Run) unlessCut(clause string, err error) error {
	if !errors.Is(err, ErrCut) {
		return err
	}
	if !slices.Contains(r.cut, clause) {
		r.cut = append(r.cut, clause)
	}
	return nil
}

// Attached reports to the run that all events from nsecs on are seen. Rates count from then: attaching takes up to a second, in
// which only some events are seen. Rates whose map cannot be cleared without losing events are excepted. So are all rates with
// --compare, because one side has counted records that the other has not read yet.
func (r *Run) Attached(nsecs uint64) error {
	defer r.lock()()
	if r.shadow != nil {
		return nil
	}
	for _, m := range r.plan.Program.Maps {
		if m.Agg != nil && m.Agg.Traits().Restarts && (r.plan.Maps[m] == nil || r.plan.TakesTurns(m)) {
			if err := r.machine.empty(m, nsecs, mapStore.clear); err != nil {
				return err
			}
		}
	}
	return nil
}

// Intervals returns the periods of the interval clauses of the program, each once.
func (r *Run) Intervals() []time.Duration {
	var all []time.Duration
	for _, c := range r.plan.Program.Clauses {
		if c.Kind == ir.OnInterval && !slices.Contains(all, c.Period) {
			all = append(all, c.Period)
		}
	}
	return all
}

// Interval runs the clauses of an interval, at nsecs.
func (r *Run) Interval(period time.Duration, nsecs uint64) error {
	return r.recur(nsecs, func(c *ir.Clause) bool { return c.Kind == ir.OnInterval && c.Period == period })
}

// Signaled runs the clauses of the signal SIGUSR1. It reports whether the program has any.
func (r *Run) Signaled() (any bool, err error) {
	asks := func(c *ir.Clause) bool { return c.Kind == ir.OnSignal }
	if !slices.ContainsFunc(r.plan.Program.Clauses, asks) {
		return false, nil
	}
	return true, r.recur(r.machine.now(), asks)
}

// recur runs the chosen clauses at nsecs.
func (r *Run) recur(nsecs uint64, chosen func(*ir.Clause) bool) error {
	defer r.lock()()
	for _, c := range r.plan.Program.Clauses {
		if !chosen(c) || r.machine.stopped {
			continue
		}
		if err := r.moment(c, nsecs, func(*setting) {}); err != nil {
			return err
		}
	}
	return nil
}

// Between calls f with the current time (nsecs) while no clause runs and no map is printed.
func (r *Run) Between(f func(at uint64) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f(r.machine.now())
}

// StoppedInKernel reports whether exit() was called in the kernel. Its record may have found no room, and Stopped never follows.
func (r *Run) StoppedInKernel() (bool, error) {
	m := r.kernel[codegen.StoppedName]
	if m == nil {
		return false, nil
	}
	var stopped uint64
	err := m.Lookup(uint32(0), &stopped)
	return stopped != 0, err
}

// Stopped reports whether exit() was called.
func (r *Run) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.stopped
}

// ExitStatus returns n of exit(n), if it was called.
func (r *Run) ExitStatus() (status int, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machine.status == nil {
		return 0, false
	}
	return *r.machine.status, true
}

// Acts returns what the program did to this machine.
func (r *Run) Acts() Acts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.acts
}

// Program returns the program of the run.
func (r *Run) Program() *ir.Program { return r.plan.Program }

// PrintMap prints a map once more, also after End: at most top rows, 0 for all, sorted by "key" or "value". "" is the default
// order.
func (r *Run) PrintMap(to Sink, name string, top int64, by string) error {
	defer r.lock()()
	m, err := r.plan.Program.MapNamed(name)
	if err != nil {
		return err
	}
	return r.machine.show(m, to, ir.MapOptions{Top: top, By: result.Order(by)})
}

// Rejected returns the number of records of a probe that user space rejected.
func (r *Run) Rejected(p *event.Probe) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rejected[p]
}

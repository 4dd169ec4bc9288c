package lang

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"trace/lang/output"
	"trace/lang/result"
	"trace/probes/event"
)

// RunOptions are what a run needs of its surroundings.
type RunOptions struct {
	Printer *output.Printer
	// Shadow is where the second, user-space run of a comparison prints.
	Shadow *output.Printer
	// Muted begin clauses print nothing: they did so before.
	Muted bool
	// Unshown maps are not printed at the end: Views and Profiles have them.
	Unshown bool
	// Now returns the time as nsecs tells it.
	Now func() uint64
	// Keep takes the events that clauses without a block would print; nil: they are printed.
	Keep func(*event.Event) error
	// Record takes the events that [PlanOptions.Record] has sent.
	Record func(*event.Event) error
	// Context ends loops of begin and interval clauses, loopGrace after its own end.
	Context context.Context
}

// loopGrace is what a clause has to come to its own end: one that prints a map and then clears it should do both.
const loopGrace = time.Second

// Run is one run of a plan: its maps, and what user space does. Its methods may be called from several goroutines.
type Run struct {
	plan *Plan
	mu   sync.Mutex

	muted   bool
	unshown bool
	machine *machine
	shadow  *machine // nil but in a comparison
	record  func(*event.Event) error
	kernel  map[string]*ebpf.Map
	halves  map[string][2]*ebpf.Map // of the maps that take turns
	turns   turns
	stacks  *stackStore // nil if the program captures none
	sites   []*siteRun
	bodies  map[*event.Probe][]*siteRun // whole, for the shadow and for recorded events
	moments map[*Clause]*block          // begin, end and interval clauses
	// rejected counts records that the user part of a predicate rejected.
	rejected map[*event.Probe]uint64
}

// siteRun is a site, compiled.
type siteRun struct {
	pred     *evaluator // nil: passes
	block    *block
	shadow   bool
	recorded bool
	stacks   map[stackUse]int
	scope    scope // of one event after the other
}

// Start creates the maps of a plan. Close releases them.
func (p *Plan) Start(o RunOptions) (*Run, error) {
	r := &Run{plan: p, muted: o.Muted, unshown: o.Unshown, record: o.Record, kernel: map[string]*ebpf.Map{}, halves: map[string][2]*ebpf.Map{}, moments: map[*Clause]*block{}, rejected: map[*event.Probe]uint64{}}
	err := r.start(o)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Run) start(o RunOptions) error {
	if err := r.createMaps(); err != nil {
		return err
	}
	if err := r.openStacks(o.Context); err != nil {
		return err
	}
	r.machine = r.newMachine(o, o.Printer, r.store)
	if r.plan.options.Compare {
		r.shadow = r.newMachine(o, o.Shadow, func(m *mapInfo) mapStore { return r.plan.userStore(m) })
	}
	return r.compile()
}

func (r *Run) newMachine(o RunOptions, printer *output.Printer, store func(*mapInfo) mapStore) *machine {
	stores := map[*mapInfo]mapStore{}
	for _, m := range r.plan.program.maps {
		stores[m] = store(m)
	}
	printer.Show(r.plan.options.Columns, r.plan.program.printed(), r.plan.program.raw)
	ctx, end := context.WithCancel(context.WithoutCancel(o.Context))
	context.AfterFunc(o.Context, func() { time.AfterFunc(loopGrace, end) })
	return &machine{stacks: r.stacks, stores: stores, printer: printer, keep: o.Keep, now: o.Now, started: r.plan.options.Started, command: r.plan.options.Command, ctx: ctx}
}

// store of a map, where the plan has it.
func (r *Run) store(m *mapInfo) mapStore {
	k := r.plan.maps[m]
	if k == nil {
		return r.plan.userStore(m)
	}
	if !k.code.Turns {
		return &kernelStore{kernelMap: k, m: r.kernel[k.code.Name]}
	}
	s := &turnStore{userStore: newUserStore(m, k.code.Entries), turns: &r.turns}
	for i, half := range r.halves[k.code.Name] {
		s.halves[i] = &kernelStore{kernelMap: k, m: half}
	}
	r.turns.all = append(r.turns.all, s)
	return s
}

// userStore keeps a map in user space, with room for as many keys as it would have in the kernel.
func (p *Plan) userStore(m *mapInfo) *userStore {
	return newUserStore(m, p.newMap(m).Entries)
}

// compile prepares what user space evaluates.
func (r *Run) compile() error {
	for _, s := range r.plan.sites {
		run, err := compileSite(&body{probe: s.part.probe, pred: s.pred, stmts: s.stmts, prints: s.prints})
		if err != nil {
			return err
		}
		run.shadow, run.recorded, run.stacks = s.shadow, s.recorded, s.stacks
		r.sites = append(r.sites, run)
	}
	if r.shadow != nil || r.plan.options.Recorded {
		r.bodies = map[*event.Probe][]*siteRun{}
		for _, b := range r.plan.parts {
			run, err := compileSite(b.body)
			if err != nil {
				return err
			}
			r.bodies[b.probe] = append(r.bodies[b.probe], run)
		}
	}
	for _, c := range r.plan.program.clauses {
		if c.kind == onEvent {
			continue
		}
		block, err := compileBody(c.bodies[nil])
		if err != nil {
			return err
		}
		r.moments[c] = block
	}
	return nil
}

// compileSite keeps the predicate apart: whether it holds is counted.
func compileSite(b *body) (run *siteRun, err error) {
	run = &siteRun{}
	if b.pred != nil {
		if run.pred, err = newEvaluator(b.pred); err != nil {
			return nil, err
		}
	}
	run.block, err = compileBody(&body{probe: b.probe, stmts: b.stmts, prints: b.prints})
	return run, err
}

// Maps are those that the code refers to, for [probes.AttachOptions].
func (r *Run) Maps() map[string]*ebpf.Map { return r.kernel }

// Close releases the maps.
func (r *Run) Close() error {
	errs := []error{r.stacks.close(), r.turns.fence.close()}
	for _, m := range r.kernel {
		errs = append(errs, m.Close())
	}
	for _, halves := range r.halves {
		errs = append(errs, halves[0].Close(), halves[1].Close())
	}
	return errors.Join(errs...)
}

// Begin runs the begin clauses. Programs are attached after it.
func (r *Run) Begin() error {
	if r.muted {
		defer func(p *output.Printer) { r.machine.printer = p }(r.machine.printer)
		r.machine.printer = output.NewPrinter(io.Discard, output.Text, time.Time{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.at(onBegin); err != nil {
		return err
	}
	return r.turns.plant()
}

// End runs the end clauses and prints all maps, but for [RunOptions.Unshown]. Programs are detached before it.
func (r *Run) End() error {
	for _, m := range r.machines() {
		m.ctx = context.Background() // the end of the run does not end its last loops
	}
	defer r.lock()()
	if err := r.turns.fence.wait(); err != nil { // a program may have run when it was detached
		return err
	}
	if err := r.at(onEnd); err != nil {
		return err
	}
	for _, m := range r.machines() {
		if !r.unshown {
			if err := r.showAll(m, m.printer); err != nil {
				return err
			}
		}
		end := m.now()
		m.now = func() uint64 { return end } // for PrintMap, later
	}
	return nil
}

// Show prints all maps, as End does, while the program goes on. Those that End does not show it writes to w, as text.
func (r *Run) Show(w io.Writer) error {
	defer r.lock()()
	p := r.machine.printer
	if r.unshown {
		p = r.machine.printer.OfMaps(w)
	}
	return r.showAll(r.machine, p)
}

// showAll prints all maps.
func (r *Run) showAll(m *machine, p *output.Printer) error {
	for _, info := range r.plan.program.maps {
		silent, err := m.silent(info)
		if err == nil && !silent {
			err = m.show(info, p, mapOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) machines() []*machine {
	if r.shadow != nil {
		return []*machine{r.machine, r.shadow}
	}
	return []*machine{r.machine}
}

func (r *Run) at(kind clauseKind) error {
	for _, c := range r.plan.program.clauses {
		if c.kind == kind {
			if err := r.moment(c, r.machine.now()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock begins a moment: what reads maps or empties them until it is unlocked sees them all as they are at one time.
func (r *Run) lock() (unlock func()) {
	r.mu.Lock()
	r.turns.settled = false
	return r.mu.Unlock
}

// moment runs a clause that no event causes. To all of it the time is nsecs, as that of an event is to its clauses.
func (r *Run) moment(c *Clause, nsecs uint64) error {
	for _, m := range r.machines() {
		now := m.now
		m.now = func() uint64 { return nsecs }
		err := m.run(r.moments[c], &scope{})
		m.now = now
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// Attached says that from nsecs on all events are seen. Rates count from there, as attaching takes up to a second, in which some events
// came and others did not; but for those that the kernel could not count if they were cleared. With --compare they do not, as one side
// has counted what still waits for the other.
func (r *Run) Attached(nsecs uint64) error {
	defer r.lock()()
	if r.shadow != nil {
		return nil
	}
	for _, m := range r.plan.program.maps {
		if m.agg != nil && m.agg.Traits().Restarts && (r.plan.maps[m] == nil || r.plan.takesTurns(m)) {
			if err := r.machine.empty(m, nsecs, mapStore.clear); err != nil {
				return err
			}
		}
	}
	return nil
}

// Intervals are the periods of the interval clauses of the program, each once.
func (r *Run) Intervals() []time.Duration {
	var all []time.Duration
	for _, c := range r.plan.program.clauses {
		if c.kind == onInterval && !slices.Contains(all, c.period) {
			all = append(all, c.period)
		}
	}
	return all
}

// Interval runs the clauses of an interval, at nsecs.
func (r *Run) Interval(period time.Duration, nsecs uint64) error {
	defer r.lock()()
	for _, c := range r.plan.program.clauses {
		if c.kind != onInterval || c.period != period || r.machine.stopped {
			continue
		}
		if err := r.moment(c, nsecs); err != nil {
			return err
		}
	}
	return nil
}

// Stopped tells whether exit() was called.
func (r *Run) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.stopped
}

// ExitStatus is what exit(n) said, if it was called.
func (r *Run) ExitStatus() (status int, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machine.status == nil {
		return 0, false
	}
	return *r.machine.status, true
}

// Waits tells whether there is anything to wait for: events or intervals. A program that only begins and ends waits for nothing.
func (p *Program) Waits() bool {
	return slices.ContainsFunc(p.clauses, func(c *Clause) bool { return c.kind == onInterval || len(c.Probes) > 0 })
}

// Prints tells whether the program may print something at an event.
func (p *Program) Prints() bool {
	for _, c := range p.clauses {
		for _, probe := range c.Probes {
			b := c.bodies[probe]
			prints := b.prints
			walkStmts(b.stmts, func(s stmt) {
				call, ok := s.(*callStmt)
				prints = prints || ok && call.prints()
			})
			if prints {
				return true
			}
		}
	}
	return false
}

// Event does what is left of a clause for a record. It tells whether anything was printed.
func (r *Run) Event(e *event.Event) (printed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sites[e.Layout().ID]
	if s.shadow {
		return false, r.follow(s, e)
	}
	if s.recorded {
		return false, r.record(e)
	}
	if r.machine.stopped {
		return false, nil
	}
	r.machine.printed = false
	passed, err := s.run(r.machine, e, s.stacks)
	if !passed {
		r.rejected[e.Probe]++
	}
	return r.machine.printed, err
}

// Replay runs the program on an event of a recording. It calls printed after each clause that printed something.
func (r *Run) Replay(e *event.Event, printed func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.bodies[e.Probe] {
		if r.machine.stopped {
			break
		}
		r.machine.printed = false
		if _, err := s.run(r.machine, e, r.plan.recorded); err != nil {
			return err
		}
		if !r.machine.printed {
			continue
		}
		if err := printed(); err != nil {
			return err
		}
	}
	return nil
}

// follow runs the whole program on an event in the second machine.
func (r *Run) follow(record *siteRun, e *event.Event) error {
	for _, s := range r.bodies[e.Probe] {
		if r.shadow.stopped {
			break
		}
		if _, err := s.run(r.shadow, e, record.stacks); err != nil {
			return fmt.Errorf("second run: %w", err)
		}
	}
	return nil
}

func (s *siteRun) run(m *machine, e *event.Event, stacks map[stackUse]int) (bool, error) {
	sc := &s.scope
	sc.event, sc.machine, sc.stacks = e, m, stacks
	if s.pred != nil {
		v, err := s.pred.eval(sc)
		if err != nil || v != true {
			return false, err
		}
	}
	return true, m.run(s.block, sc)
}

// Program is what runs.
func (r *Run) Program() *Program { return r.plan.program }

// PrintMap prints a map once more as text, after End too: at most top entries, 0 for all of them, by "key", "value" or, if it is "", what is usual.
func (r *Run) PrintMap(w io.Writer, name string, top int64, by string) error {
	defer r.lock()()
	i := slices.IndexFunc(r.plan.program.maps, func(m *mapInfo) bool { return m.name == name })
	if i < 0 {
		return fmt.Errorf("no map is called %s: %s", name, strings.Join(r.plan.program.Maps(), ", "))
	}
	return r.machine.show(r.plan.program.maps[i], r.machine.printer.OfMaps(w), mapOptions{top: top, by: result.Order(by)})
}

// Rejected is the number of records of a probe that user space rejected.
func (r *Run) Rejected(p *event.Probe) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rejected[p]
}

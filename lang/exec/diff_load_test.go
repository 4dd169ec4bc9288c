package exec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"trace/lang/agg"
	"trace/lang/check"
	"trace/lang/ir"
	"trace/lang/plan"
	"trace/lang/result"
	"trace/probes/event"
)

// This file prints and clears maps while BPF programs run on other CPUs. The sum of everything printed must be the sum of the
// events.

// loadTicks is how often an interval clause prints and clears while loadCPUs run events.
const loadTicks, loadCPUs = 30, 3

// loadKeys is the size of maps: each event may bring a key with each of some statements, and no map may be full.
const loadKeys = 100 * diffEvents

// TestDifferentialLoad runs random programs whose maps events only add to, or only set.
func TestDifferentialLoad(t *testing.T) {
	if *diffSeed == 0 {
		*diffSeed = uint64(time.Now().UnixNano())
	}
	took := *diffTime / 4
	if testing.Short() {
		took = min(took, 2*time.Second)
	}
	k, all := diffSetup(t)
	end := time.Now().Add(took)
	programs := 0
	for n := int64(0); time.Now().Before(end); n++ {
		c := randomCase(*diffSeed, n, all)
		if !c.loadable() {
			continue
		}
		programs++
		if f := c.load(k); f != nil {
			t.Fatalf("program %d of -diff.seed %d: %s: %s\n%s", n, *diffSeed, f.kind, f.detail, c)
		}
	}
	if programs == 0 {
		t.Error("no program")
	}
	t.Logf("%d programs, -diff.seed %d", programs, *diffSeed)
}

// loadable makes a program in which every map is printed and cleared, if possible. The effect of an event must not depend on others
// then, and no map may be too small.
func (c *diffCase) loadable() bool {
	p := c.prog
	if c.inUser || len(p.maps) == 0 {
		return false
	}
	p.begin, p.interval = nil, nil
	ends := false
	p.walk(func(s *diffStmt) {
		ends = ends || s.kind == "exit"
	})
	for _, m := range p.maps {
		// Without compare-and-exchange min and max lose a value that comes within a nanosecond of another.
		if ends || m.kind != "" || m.agg == "topk" || p.mixes(m) || !c.compareExchange && (m.agg == "min" || m.agg == "max") {
			return false
		}
		p.interval = append(p.interval, diffTick{m: m, print: "print(%s)", fn: "clear"})
	}
	c.alone, c.compare = false, false
	c.text = p.String()
	return true
}

// load runs events on some CPUs while maps are printed and cleared. It compares the sum of everything printed with what each event
// adds, as often as it ran.
func (c *diffCase) load(k *diffKernel) *diffFailure {
	prog, err := compile("diff", c.text, c.probes, check.Options{Exemplars: c.exemplars})
	if err != nil {
		return c.rejected(err)
	}
	kernel := &diffSide{}
	o := c.options()
	o.MapKeys = loadKeys
	if kernel.plan, err = plan.New(prog, o); err != nil {
		return differ("plan", "%v", err)
	}
	if f := c.fallback(kernel.plan); f != nil {
		return f
	}
	if err := kernel.start(c.format); err != nil {
		return differ("start", "%v", err)
	}
	defer kernel.Close()
	loaded, err := k.load(kernel.plan, kernel.Run)
	if err != nil {
		return differ("load", "%v", err)
	}
	defer loaded.close()
	printed := c.watch(kernel)
	c.identify(printed)
	runs, err := c.runLoad(k, loaded, kernel)
	if err != nil {
		return differ("run", "%v", err)
	}
	truth, err := c.truth(prog, runs)
	if err != nil {
		return differ("truth", "%v", err)
	}
	for _, m := range prog.Maps {
		if f := compareRowTexts("print and clear", m.Name, "the events", truth[m.Name], "the prints", printed[m].texts(truth[m.Name])); f != nil {
			f.detail += fmt.Sprintln(kernel.MapLosses())
			return f
		}
		if stranger := printed[m].stranger; stranger != "" {
			return differ("exemplar", "%s: %s", m.Name, stranger)
		}
	}
	return nil
}

// runLoad returns how often each event ran.
func (c *diffCase) runLoad(k *diffKernel, loaded diffLoaded, side *diffSide) ([]uint64, error) {
	for i, e := range c.events {
		if _, err := k.memory.WriteAt(e.raw, int64(i*diffSize)); err != nil {
			return nil, err
		}
	}
	if err := side.Attached(0); err != nil {
		return nil, err
	}
	runs := make([]atomic.Uint64, len(c.events))
	var over atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, loadCPUs+1)
	for cpu := range loadCPUs {
		wg.Go(func() {
			for i := cpu; !over.Load(); i++ {
				n := i % len(c.events)
				prog := loaded[c.events[n].probe]
				if prog == nil {
					continue
				}
				if _, err := prog.Run(&ebpf.RunOptions{Context: [1]uint64{uint64(n)}}); err != nil {
					errs <- err
					return
				}
				runs[n].Add(1)
			}
		})
	}
	for range loadTicks {
		if err := side.Interval(time.Second, 1e12); err != nil {
			errs <- err
			break
		}
	}
	over.Store(true)
	wg.Wait()
	if err := side.Interval(time.Second, 1e12); err != nil {
		return nil, err
	}
	all := make([]uint64, len(runs))
	for i := range runs {
		all[i] = runs[i].Load()
	}
	select {
	case err := <-errs:
		return nil, err
	default:
		return all, nil
	}
}

// truth runs each event once in user space, and multiplies.
func (c *diffCase) truth(prog *ir.Program, runs []uint64) (map[string]map[string]string, error) {
	options := c.options()
	options.NoKernel = true
	user := &diffSide{}
	var err error
	if user.plan, err = plan.New(prog, options); err != nil {
		return nil, err
	}
	if err := user.start(c.format); err != nil {
		return nil, err
	}
	defer user.Close()
	sums := c.watch(user)
	for i, e := range c.events {
		if runs[i] == 0 {
			continue
		}
		if err := user.feedUser([]rawEvent{e}); err != nil {
			return nil, err
		}
		for _, s := range sums {
			s.times = runs[i]
			if _, err := s.elements(); err != nil {
				return nil, err
			}
			if err := s.clear(); err != nil {
				return nil, err
			}
		}
	}
	all := map[string]map[string]string{}
	for m, s := range sums {
		all[m.Name] = s.texts(nil)
	}
	return all, nil
}

// loadStore adds up what is read from a map before it is cleared.
type loadStore struct {
	mapStore
	m     *ir.Map
	grows bool // events add to its numbers
	last  []ir.Element
	times uint64 // how often an element counts; 0 means 1
	sum   map[string]*loadRow
	// origins are the times and threads of all events, and stranger describes an exemplar that is of none.
	origins  map[origin]bool
	stranger string
}

// origin is the time and the thread of an event.
type origin struct{ nsecs, tid uint64 }

// identify notes which exemplars there may be.
func (c *diffCase) identify(all map[*ir.Map]*loadStore) {
	origins := map[origin]bool{}
	for _, e := range c.events {
		origins[origin{event.To[uint64](e.get(e.probe.Field("nsecs"))), event.To[uint64](e.get(e.probe.Field("tid")))}] = true
	}
	for _, s := range all {
		s.origins = origins
	}
}

// watch stands between the clauses of a side and its maps.
func (c *diffCase) watch(side *diffSide) map[*ir.Map]*loadStore {
	all := map[*ir.Map]*loadStore{}
	for m, s := range side.machine.stores {
		all[m] = &loadStore{mapStore: s, m: m, sum: map[string]*loadRow{}}
		c.prog.walk(func(s *diffStmt) {
			all[m].grows = all[m].grows || s.m != nil && s.m.name == m.Name && slices.Contains([]string{"+=", "-=", "++", "--"}, s.kind)
		})
		side.machine.stores[m] = all[m]
	}
	return all
}

// loadRow is the sum of a key: a state, the sum of added numbers, or all values that were set.
type loadRow struct {
	state  []uint64
	number uint64
	values map[string]bool
}

func (s *loadStore) elements() ([]ir.Element, error) {
	all, err := s.mapStore.elements()
	s.last = all
	return all, err
}

func (s *loadStore) clear() error {
	s.count()
	return s.mapStore.clear()
}

func (s *loadStore) zero() error { // a rate that was printed
	s.count()
	return s.mapStore.zero()
}

func (s *loadStore) count() {
	for _, e := range s.last {
		key := diffKeyText(e.Key)
		row := s.sum[key]
		if row == nil {
			row = &loadRow{values: map[string]bool{}}
			s.sum[key] = row
		}
		row.add(s.m, e, max(s.times, 1))
		s.meet(e)
	}
	s.last = nil
}

// meet notes an exemplar that is of no event: of words of two events, perhaps.
func (s *loadStore) meet(e ir.Element) {
	if s.origins == nil || e.State == nil {
		return
	}
	var times []uint64
	show := agg.Show{Clock: func(nsecs uint64) time.Time { times = append(times, nsecs); return time.Time{} }}
	var h result.Histogram
	switch v := s.m.Agg.Result(e.State, show).(type) {
	case result.Histogram:
		h = v
	case result.Quantiles:
		h = v.Histogram
	}
	for i, x := range h.Exemplars {
		if of := (origin{times[i], uint64(x.TID)}); !s.origins[of] {
			s.stranger = fmt.Sprintf("%+v, bucket %d", of, x.Bucket)
		}
	}
}

func (r *loadRow) add(m *ir.Map, e ir.Element, times uint64) {
	switch {
	case e.State == nil:
		r.values[diffKeyText(e.Value)] = true
		if len(e.Value) == 1 && event.IsNumber(m.Value[0].Type) {
			r.number += event.To[uint64](e.Value[0]) * times
		}
	case r.state == nil:
		r.state = make([]uint64, len(e.State))
		fallthrough
	default:
		part := slices.Clone(e.State)
		if m.Agg.Traits().Exemplars { // which events are the last ones depends on the CPUs
			clear(part[len(part)-agg.Slots*agg.SlotSize:])
		}
		if !m.Agg.Traits().Picks {
			for i := range part {
				part[i] *= times
			}
		}
		m.Agg.Merge(r.state, part)
	}
}

// texts returns the sums by key. Of values that were set, the printed ones must be among the true ones.
func (s *loadStore) texts(truth map[string]string) map[string]string {
	all := map[string]string{}
	for key, row := range s.sum {
		switch {
		case row.state != nil:
			if len(s.m.Key) > 0 || !isZero(row.state) {
				all[key] = fmt.Sprint(row.state)
			}
		case s.grows:
			all[key] = fmt.Sprint(row.number)
		default:
			all[key] = strings.Join(slices.Sorted(maps.Keys(row.values)), "\n")
			if len(row.values) > 0 && truth != nil && row.among(truth[key]) {
				all[key] = truth[key]
			}
		}
	}
	return all
}

func (r *loadRow) among(truth string) bool {
	possible := strings.Split(truth, "\n")
	for v := range r.values {
		if !slices.Contains(possible, v) {
			return false
		}
	}
	return true
}

package exec

import (
	"encoding/binary"
	"slices"
	"testing"

	"trace/lang/ir"
	"trace/lang/plan"
	"trace/probes/event"
)

// pieceRun is a run of a site that sends three records of an event: its first piece has the ID 0, its last one 2.
type pieceRun struct {
	*Run
	layouts []*event.Layout
	ran     []int // run*10 + ID
}

func newPieceRun() *pieceRun {
	r := &pieceRun{Run: &Run{machine: &machine{}, pieces: incomplete{all: map[execution]*pieces{}}, rejected: map[*event.Probe]uint64{}, plan: &plan.Plan{}}}
	probe, site := &event.Probe{}, &plan.Site{}
	for id := range 3 {
		r.layouts = append(r.layouts, event.NewLayout(id, probe, nil, []event.Type{ir.Natural64}))
		run := func(sc *scope) (flow, error) {
			of, _ := sc.event.(*event.Event).Value(0)
			r.ran = append(r.ran, int(event.To[int64](of))*10+id)
			return goesOn, nil
		}
		r.parts = append(r.parts, &siteRun{block: &block{run: run}})
		r.plan.Parts = append(r.plan.Parts, &plan.Part{Site: site, Piece: &plan.Piece{First: id == 0, Last: id == 2}})
	}
	return r
}

// arrive runs records, each of them run*10 + ID, in memory that is used again.
func (r *pieceRun) arrive(t *testing.T, records ...int) {
	t.Helper()
	raw := make([]byte, r.layouts[0].Size)
	for _, one := range records {
		at, present := r.layouts[0].Slot(0)
		binary.LittleEndian.PutUint64(raw, uint64(one%10))
		binary.LittleEndian.PutUint64(raw[at:], uint64(one/10))
		raw[present] = 1
		var e event.Event
		if err := event.Decode(r.layouts, raw, &e); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPiecesAreJoined(t *testing.T) {
	for name, c := range map[string]struct{ arrive, ran, left []int }{
		"one after the other":             {[]int{10, 11, 12, 20, 22}, []int{10, 11, 12, 20, 22}, nil},
		"another one between":             {[]int{10, 20, 21, 11, 30, 22, 12, 32}, []int{20, 21, 22, 10, 11, 12, 30, 32}, nil},
		"the last is lost":                {[]int{10, 11, 20, 22}, []int{20, 22}, []int{10, 11}},
		"the last is lost, others follow": {[]int{10, 11, 10, 12}, []int{10, 11, 10, 12}, nil},
		"the first is lost":               {[]int{11, 12, 22}, []int{11, 12, 22}, nil},
		"all but the first are lost":      {[]int{20, 10}, nil, []int{20, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPieceRun()
			if r.arrive(t, c.arrive...); !slices.Equal(r.ran, c.ran) {
				t.Errorf("%d ran, want %d", r.ran, c.ran)
			}
			r.ran = nil
			if err := r.Unfinished(); err != nil || !slices.Equal(r.ran, c.left) {
				t.Errorf("%d ran in the end, want %d (%v)", r.ran, c.left, err)
			}
		})
	}
}

// What was lost takes no more than some memory.
func TestPiecesOfManyEvents(t *testing.T) {
	r := newPieceRun()
	for run := range 3 * maxIncomplete {
		r.arrive(t, 10*run)
		if n := len(r.pieces.all); n > maxIncomplete {
			t.Fatalf("%d events are held", n)
		}
	}
	if err := r.Unfinished(); err != nil || len(r.ran) != 3*maxIncomplete || !slices.IsSorted(r.ran) {
		t.Errorf("%d records ran, in order: %v (%v)", len(r.ran), slices.IsSorted(r.ran), err)
	}
}

// After exit() nothing is printed.
func TestPiecesAfterExit(t *testing.T) {
	r := newPieceRun()
	r.arrive(t, 10, 20)
	r.machine.stopped = true
	r.arrive(t, 12)
	if err := r.Unfinished(); err != nil || r.ran != nil {
		t.Errorf("%d ran (%v)", r.ran, err)
	}
}

package exec

import (
	"encoding/binary"
	"slices"
	"testing"

	"trace/lang/ir"
	"trace/lang/plan"
	"trace/probes/event"
)

// pieceRun is a run of a site that sends three records of an event, with the IDs 0 to 2.
type pieceRun struct {
	*Run
	layouts []*event.Layout
	ran     []int // run*10 + ID
}

func newPieceRun() *pieceRun {
	r := &pieceRun{Run: &Run{machine: &machine{}, pieces: incomplete{all: map[execution]*pieces{}}, rejected: map[*event.Probe]uint64{}, plan: &plan.Plan{}}}
	probe, site := &event.Probe{}, &plan.Site{}
	for id := range 3 {
		r.layouts = append(r.layouts, event.NewLayout(id, probe, nil, []event.Type{ir.Natural64, ir.Natural64}))
		run := func(sc *scope) (flow, error) {
			of, _ := sc.event.(*event.Event).Value(0)
			r.ran = append(r.ran, int(event.To[int64](of))*10+id)
			return goesOn, nil
		}
		r.parts = append(r.parts, &siteRun{block: &block{run: run}})
		r.plan.Parts = append(r.plan.Parts, &plan.Part{Site: site, Piece: &plan.Piece{Last: id == 2, Number: 1}})
	}
	return r
}

// arrive runs records, each of them run*10 + ID, in memory that is used again.
func (r *pieceRun) arrive(t *testing.T, records ...int) {
	t.Helper()
	raw := make([]byte, r.layouts[0].Size)
	for _, one := range records {
		binary.LittleEndian.PutUint64(raw, uint64(one%10))
		for i, v := range []int{one / 10, one % 10} {
			at, present := r.layouts[0].Slot(i)
			binary.LittleEndian.PutUint64(raw[at:], uint64(v))
			raw[present] = 1
		}
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
	for name, c := range map[string]struct{ arrive, ran []int }{
		"one after the other":    {[]int{10, 11, 12, 20, 21, 22}, []int{10, 11, 12, 20, 21, 22}},
		"another one between":    {[]int{10, 20, 21, 11, 30, 22, 31, 12, 32}, []int{20, 21, 22, 10, 11, 12, 30, 31, 32}},
		"the last found no room": {[]int{10, 11, 20, 21, 10, 22, 11, 12}, []int{20, 21, 22, 10, 11, 12}},
		"the ends are missing":   {[]int{20, 10}, nil},
		"one is not whole":       {[]int{10, 12, 21, 22, 10, 11, 12}, []int{10, 11, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPieceRun()
			if r.arrive(t, c.arrive...); !slices.Equal(r.ran, c.ran) {
				t.Errorf("%d ran, want %d", r.ran, c.ran)
			}
		})
	}
}

// Events whose ends found no room take no more than some memory, and those that have begun last are not forgotten.
func TestPiecesOfManyEvents(t *testing.T) {
	r := newPieceRun()
	for run := range 3 * maxIncomplete {
		r.arrive(t, 10*run)
		if n := len(r.pieces.all); n > maxIncomplete {
			t.Fatalf("%d events are held", n)
		}
	}
	last := 10 * (3*maxIncomplete - 1)
	if r.arrive(t, last+1, last+2); !slices.Equal(r.ran, []int{last, last + 1, last + 2}) {
		t.Errorf("%d ran", r.ran)
	}
}

// After exit() nothing is printed.
func TestPiecesAfterExit(t *testing.T) {
	r := newPieceRun()
	r.arrive(t, 10, 11)
	r.machine.exit(nil, true)
	if r.arrive(t, 12); r.ran != nil {
		t.Errorf("%d ran", r.ran)
	}
}

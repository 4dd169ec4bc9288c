//go:build linux

package probes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Steps of seeding, enum seeding in trace.h.
const (
	seeding  = 1
	watching = 2
	checking = 3
)

// inventory holds the objects that the programs of a request have reported, and compares them with the kernel's list (SEEDED in trace.h).
type inventory struct {
	*request
	// controls are the variables that Go sets, counters those that programs count in.
	controls, counters *ebpf.Map
	at                 map[string]uint32 // places of the variables in them
	known              *ebpf.Map
	// lost reports that an object has gone.
	lost *ebpf.Program
	// visitors see the objects on the kernel's walk over them; blind means that there are no visitors.
	visitors []*attached
	blind    bool

	number uint32 // of the last walk
	// partial means that there may be objects that were not reported.
	partial bool
	// accepted is the surplus that the last comparison left, at compared; the comparison took that long.
	accepted map[class]int
	compared time.Time
	took     time.Duration
	// unmet are the objects that the last walk did not meet.
	unmet map[uint64]class
	// corrected is how many events had come by comparisons after the last one, skipped how many runs the kernel had skipped before it.
	corrected, skipped uint64
	// full means that the lack of room was noted.
	full bool
}

// The sections of variables of the C code.
const (
	controlSection = ".data"
	counterSection = ".bss"
)

func newInventory(l *loader, r *request) (*inventory, error) {
	inv := &inventory{request: r, controls: l.maps[controlSection], counters: l.maps[counterSection], known: l.maps[structName(r.Probe)+"_known"], at: make(map[string]uint32)}
	for _, name := range []string{"seeding", "walk", "partial", "told", "gone", "unsure", "corrected", "full"} {
		inv.at[name] = l.spec.Variables[structName(r.Probe)+"_"+name].Offset
	}
	var err error
	inv.lost, err = l.unattached(r.origin.hook.seed.lost)
	return inv, err
}

// set sets the step of seeding, and the number of the walk.
func (inv *inventory) set(step, number uint32, partial bool) error {
	inv.number, inv.partial = number, partial
	var value []byte
	if err := inv.controls.Lookup(uint32(0), &value); err != nil {
		return err
	}
	put := func(name string, n uint32) { binary.NativeEndian.PutUint32(value[inv.at[name]:], n) }
	put("walk", number)
	put("seeding", step)
	put("partial", 0)
	if partial {
		put("partial", 1)
	}
	return inv.controls.Put(uint32(0), value)
}

// tally is what the programs have counted, struct SEEDED in trace.h.
type tally struct {
	told                          [classes]int
	gone, unsure, corrected, full uint32
}

// classes is CLASSES of trace.h.
const classes = 16

func (inv *inventory) tally() (t tally, err error) {
	var value []byte
	if err := inv.counters.Lookup(uint32(0), &value); err != nil {
		return t, err
	}
	get := func(name string, i uint32) uint32 { return binary.NativeEndian.Uint32(value[inv.at[name]+4*i:]) }
	for i := range t.told {
		t.told[i] = int(int32(get("told", uint32(i))))
	}
	t.gone, t.unsure, t.corrected, t.full = get("gone", 0), get("unsure", 0), get("corrected", 0), get("full", 0)
	return t, nil
}

// walk makes the kernel walk over all objects.
func (inv *inventory) walk(ctx context.Context) (walked, error) {
	return inv.origin.hook.seed.walk(ctx, func() (uint32, error) {
		t, err := inv.tally()
		return t.gone, err
	})
}

// begin begins a comparing walk.
func (inv *inventory) begin(step uint32) (unsure uint32, err error) {
	if err := inv.set(checking, inv.number+step, inv.partial); err != nil {
		return 0, err
	}
	t, err := inv.tally()
	return t.unsure, err
}

// settle reports the objects that have gone: those that two consecutive walks did not meet. An object that is just coming or going may be
// unmet, or met but unknown, in one walk; while there are such objects, settled is false and another walk is needed.
func (inv *inventory) settle(w walked, counts map[class]int, unsure uint32) (settled bool, err error) {
	t, err := inv.tally()
	if err != nil {
		return false, err
	}
	unmet, err := inv.notMet()
	if err != nil {
		return false, err
	}
	certain := t.certain(unmet, w, counts)
	maps.DeleteFunc(unmet, func(_ uint64, c class) bool { return !certain(c) })
	settled = t.unsure == unsure
	for object := range unmet {
		if _, before := inv.unmet[object]; !before {
			settled = false
			continue
		}
		delete(unmet, object)
		if _, err := inv.lost.Run(&ebpf.RunOptions{Context: [2]uint64{object}}); err != nil {
			return false, fmt.Errorf("run %s: %w", inv.origin.hook.seed.lost, err)
		}
	}
	inv.unmet = unmet
	return settled, nil
}

// certain reports whether the objects that a walk did not meet are gone: if the kernel counts objects, the walk must have met as many. The
// kernel may also skip programs that see the walk.
func (t tally) certain(unmet map[uint64]class, w walked, counts map[class]int) func(class) bool {
	met := t.told
	for _, c := range unmet {
		met[c]--
	}
	all := true
	for c, n := range counts {
		all = all && met[c] >= n
	}
	return func(c class) bool {
		if n, counted := counts[c]; counted {
			return met[c] >= n
		}
		return w.whole[c] && all
	}
}

// The value of a known object, struct resource in bpf/rdma.bpf.c, begins with the number of the walk that met it last, and its class.
const knownHead = 8

// notMet returns the objects that the last walk did not meet.
func (inv *inventory) notMet() (map[uint64]class, error) {
	found := make(map[uint64]class)
	size, count := int(inv.known.ValueSize()), min(int(inv.known.MaxEntries()), 1<<12)
	if size < knownHead {
		return nil, errors.New("known objects have no walk numbers")
	}
	keys := make([]uint64, count)
	values := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), count, count)
	raw := unsafe.Slice((*byte)(values.UnsafePointer()), size*count)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := inv.known.BatchLookup(&cursor, keys, values.Interface(), nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return nil, fmt.Errorf("known objects: %w", err)
		}
		for i := range n {
			head := raw[i*size:]
			if binary.NativeEndian.Uint32(head) != inv.number {
				found[keys[i]] = class(binary.NativeEndian.Uint32(head[4:]) % classes)
			}
		}
		if last {
			return found, nil
		}
	}
}

// misses returns how many runs the kernel has skipped.
func (inv *inventory) misses() (n uint64) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, a := range inv.attached {
		m, err := a.misses()
		if err != nil {
			return n // the list shows it anyway
		}
		n += m
	}
	return n
}

func (inv *inventory) detach() error {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return detachAll(inv.visitors)
}

// reattach attaches the visitors on functions again. If that fails, walks meet nothing and correct nothing.
func (inv *inventory) reattach(functions map[string]bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, a := range inv.visitors {
		if a.place.way.vanishes() && functions[a.place.target] {
			a.reattach()
		}
	}
}

// Close detaches and releases the visitors; the request is released separately.
func (inv *inventory) Close() error {
	return errors.Join(inv.detach(), closeAll(inv.visitors), inv.lost.Close())
}

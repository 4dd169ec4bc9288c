//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// LookQP looks at a QP of a process, and at its CQs, now and when it has settled: the address that the kernel has of its struct ibv_qp, and the kernel's
// number of it, 0 if that is unknown. When it has settled, another number at that address is a reason to refuse it: before that the program may be about
// to set it. On a busy machine a read may be given up, so it is tried again a few times: nothing else would look at these objects later.
func (f *Finder) LookQP(pid int, address uint64, number uint32) {
	for _, due := range []time.Duration{0, settled} {
		of := subject{pid, map[time.Duration]string{0: "QP", settled: "settled QP"}[due], address, number}
		left := tries
		f.later(of, due, func(t *target) (again time.Duration) {
			left--
			err := f.lookQP(t, address, number, due > 0, left == 0)
			if err == nil || gone(err) || left == 0 {
				return 0
			}
			return settled
		})
	}
}

// lookQP returns what kept it from looking.
func (f *Finder) lookQP(t *target, address uint64, number uint32, settled, last bool) error {
	head := make([]byte, qpNum+4)
	n, err := t.read(address, head)
	if err != nil && !last {
		return err
	}
	if is := binary.NativeEndian.Uint32(head[qpNum:]); number != 0 && is != number {
		if settled && !gone(err) && t.same() {
			f.refuseQP(t.process, address, number)
		}
		return nil
	}
	if err != nil || n < len(head) {
		return err
	}
	shift, err := t.shift(pointer(head, 0))
	if err != nil {
		return err
	}
	send, receive := pointer(head, sendCQ), pointer(head, recvCQ)
	err = f.lookAt(t, cqObject.shifted(shift), send)
	if receive != send {
		err = errors.Join(err, f.lookAt(t, cqObject.shifted(shift), receive))
	}
	return errors.Join(err, f.lookAt(t, qpObject.shifted(shift), address))
}

// shift returns by how much objects of a context are shifted.
func (t *target) shift(context uint64) (int, error) {
	if len(shifts) == 1 {
		return shifts[0], nil
	}
	memory := make([]byte, contextSize())
	if _, err := t.read(context, memory); err != nil {
		return 0, err
	}
	shift, _ := shiftOf(memory)
	return shift, nil
}

// lookAt looks at an object of a process, and returns what kept it from looking.
func (f *Finder) lookAt(t *target, o object, address uint64) error {
	memory := make([]byte, o.size)
	if n, err := t.read(address, memory); err != nil || n < len(memory) || !o.made(memory) {
		return err // nil: it is smaller, or another one
	}
	like := functions{t.process, o.name, string(memory[o.functions:])}
	f.mu.Lock()
	known := f.objects[like]
	f.mu.Unlock()
	if known {
		f.timed(t, o, memory)
		return nil
	}
	context := make([]byte, contextSize())
	if n, err := t.read(pointer(memory, 0), context); err != nil || n < len(context) {
		return err
	}
	devices, err := t.open()
	if err != nil || !search(0, context, fdsOf(devices), func(uint64, []byte) bool { return true }) {
		return err
	}
	if err := t.mapped(); err != nil {
		return err
	}
	if f.foundObject(t, o, memory) == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, sends := f.ready[t.process]; sends { // it may have posted before
		r.followed = false
		f.ready[t.process] = r
	}
	if len(f.objects) == mostKnown {
		clear(f.objects)
	}
	f.objects[like] = true
	return nil
}

// functions are the pointers to functions of a process's QP or CQ: most of its QPs have the same.
type functions struct {
	process
	of, pointers string
}

// made reports whether an object was made for these calls.
func (o object) made(memory []byte) bool { return pointer(memory, o.calls[o.has]) != 0 }

// foundObject attaches the followers to the functions of an object, if all that it has are in one library, and returns them if that is done. What is
// an object, and has others, is refused.
func (f *Finder) foundObject(t *target, o object, memory []byte) map[string]place {
	if !o.made(memory) || !t.code(o.certain(), memory) {
		return nil
	}
	first, err := f.prover.prove(t, pointer(memory, o.calls[o.has]))
	if err != nil {
		f.refuseObject(t, o, o.has, err)
		return nil
	}
	at := make(map[string]place)
	for _, call := range slices.Sorted(maps.Keys(o.calls)) {
		offset := o.calls[call]
		address := pointer(memory, offset)
		if address == 0 {
			continue
		}
		p, err := f.prover.prove(t, address)
		switch {
		case err == nil && p.library == first.library:
			at[call] = p
		case offset > o.sure: // it is behind the struct
		case err == nil:
			f.refuseObject(t, o, call, &refusal{unproven, fmt.Sprintf("is in %s, and %s is not", p.name, o.has)})
			return nil
		default:
			f.refuseObject(t, o, call, err)
			return nil
		}
	}
	if !f.addAll(t, o.name+" of ", at) {
		return nil
	}
	f.timed(t, o, memory)
	return at
}

// certain are the functions that are in all versions of the struct.
func (o object) certain() map[string]int {
	all := maps.Clone(o.calls)
	maps.DeleteFunc(all, func(_ string, offset int) bool { return offset > o.sure })
	return all
}

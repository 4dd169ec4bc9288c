//go:build linux

package probes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"

	"trace/probes/event"
)

// A maker runs the program of a probe whose events Go makes (MADE in bpf/trace.h).
type maker struct {
	program *ebpf.Program
	probe   *event.Probe
	note    func(text string)
}

func (m maker) event() filled { return filled{m.probe, make([]byte, m.probe.Size)} }

// lost counts a loss.
func (m maker) lost(kind int) { m.run(0, kind) }

// deliver runs the program with an event. Memory that was taken away meanwhile cannot be read there: then the event is moved.
func (m maker) deliver(f filled) {
	const tries = 3
	for range tries {
		raw := bytes.Clone(f.raw)
		done := m.run(uintptr(unsafe.Pointer(&raw[0])), 0)
		runtime.KeepAlive(raw)
		if done {
			return
		}
	}
	m.lost(countUnseen)
}

// run runs the program, and reports whether it need not run again.
func (m maker) run(address uintptr, kind int) bool {
	failed, err := m.program.Run(&ebpf.RunOptions{Context: [2]uint64{uint64(address), uint64(kind)}})
	if err != nil {
		m.note(fmt.Sprintf("%s: an event is missing: %v", m.probe, err))
	}
	return err != nil || failed == 0
}

// filled is an event that Go fills.
type filled struct {
	probe *event.Probe
	raw   []byte
}

func (f filled) clone() filled { return filled{f.probe, bytes.Clone(f.raw)} }

// number sets a field that is a number or a truth value.
func (f filled) number(name string, n uint64) {
	field := f.present(name)
	var value [8]byte
	binary.NativeEndian.PutUint64(value[:], n)
	copy(f.raw[field.Offset:field.Offset+field.Type.Size], value[:])
}

// text sets a field to the end of a text that has room, with a NUL behind it; "" leaves it absent.
func (f filled) text(name, text string) {
	if text == "" {
		return
	}
	field := f.present(name)
	text = text[max(0, len(text)-(field.Type.Size-1)):]
	copy(f.raw[field.Offset:field.Offset+field.Type.Size-1], text)
}

func (f filled) present(name string) *event.Field {
	field := f.probe.Field(name)
	if field.Optional {
		f.raw[field.Presence.Offset] |= field.Presence.Mask
	}
	return field
}

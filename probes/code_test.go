package probes

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"trace/probes/event"
	"trace/probes/rewrite"
)

// A want is what a test asks of a probe. The code for it is made here: all that these tests need of a code generator.
type want struct {
	probe *event.Probe
	// fields are delivered. They are captured after the filter, unless that reads them.
	fields []*event.Field
	// operand is a field that the filter reads. What it makes of its value is the result of the filter and comes as value 0; see fold.
	operand *event.Field
	// pid is the only process whose events pass; 0 lets all pass.
	pid int
	// stack is how much stack each function uses.
	stack int
	// greedy makes the filter use all registers that a call would save: so some of the caller's must be saved where it is spliced.
	greedy bool
}

// ways returns the want with a filter that uses few registers, and with one for which registers must be saved.
func (w want) ways() []want {
	greedy := w
	greedy.greedy = true
	return []want{w, greedy}
}

// request returns the request for a want, and the layout of what it delivers.
func (w want) request(id int) (Request, *event.Layout) {
	l := event.NewLayout(id, w.probe, w.fields, []event.Type{{Kind: event.Uint, Size: 8}})
	code := &Code{Filter: w.filter(), Action: w.action(l), Text: "test: " + w.probe.String()}
	if w.pid != 0 {
		code.Before = append(code.Before, spanOf(w.probe.Field("pid")))
	}
	if w.operand != nil {
		code.Before = append(code.Before, spanOf(w.operand))
	}
	for _, f := range w.fields {
		code.After = append(code.After, spanOf(f))
	}
	r := Request{Probe: w.probe, Code: code}
	if w.probe.Sampled {
		r.Arg = Rate(99)
	}
	return r, l
}

func spanOf(f *event.Field) Span {
	return Span{f.Offset, f.Type.Size}
}

func (w want) filter() asm.Instructions {
	var insns asm.Instructions
	if w.greedy {
		for r := asm.R6; r <= asm.R9; r++ {
			insns = append(insns, asm.Mov.Reg(r, asm.R2))
		}
		insns = append(insns, asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R2, asm.R6))
	}
	insns = append(insns, asm.Mov.Imm(asm.R0, 1))
	insns = append(insns, w.useStack()...)
	if w.pid != 0 {
		offset := w.probe.Field("pid").Offset
		insns = append(insns,
			asm.LoadMem(asm.R3, asm.R2, int16(offset), asm.Word),
			asm.JNE.Imm(asm.R3, int32(w.pid), "reject"))
	}
	if w.operand != nil {
		insns = append(insns, loadFold(w.operand)...)
	}
	insns = append(insns, asm.Return().WithSymbol("pass"))
	if w.pid != 0 {
		insns = append(insns, asm.Mov.Imm(asm.R0, 0).WithSymbol("reject"), asm.Return())
	}
	return insns
}

// useStack stores at the very end of the stack that a function may use.
func (w want) useStack() asm.Instructions {
	if w.stack == 0 {
		return nil
	}
	return asm.Instructions{asm.StoreMem(asm.RFP, int16(-w.stack), asm.R0, asm.DWord)}
}

// loadFold computes the fold of a field, or goes on with the 1 in R0 if the field is absent.
func loadFold(f *event.Field) asm.Instructions {
	var insns asm.Instructions
	if f.Optional {
		offset, mask := f.Presence.Offset, f.Presence.Mask
		insns = append(insns,
			asm.LoadMem(asm.R3, asm.R2, int16(offset), asm.Byte),
			asm.And.Imm(asm.R3, int32(mask)),
			asm.JEq.Imm(asm.R3, 0, "pass"))
	}
	insns = append(insns, asm.Mov.Imm(asm.R4, 0))
	offset, size := f.Offset, f.Type.Size
	for at := 0; at < size; at += min(size, 4) {
		insns = append(insns,
			asm.LoadMem(asm.R3, asm.R2, int16(offset+at), map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word}[min(size, 4)]),
			asm.Xor.Reg(asm.R4, asm.R3))
	}
	return append(insns, asm.LSh.Imm(asm.R4, 1), asm.Mov.Reg(asm.R0, asm.R4), asm.Or.Imm(asm.R0, 3))
}

// fold does the same here: the words of a value, xored, doubled and made odd and more than 1, or 1 if there is none.
func fold(value []byte) uint64 {
	if value == nil {
		return 1
	}
	var sum uint64
	for at := 0; at < len(value); at += min(len(value), 4) {
		var word [8]byte
		copy(word[:], value[at:at+min(len(value), 4)])
		sum ^= binary.LittleEndian.Uint64(word[:])
	}
	return sum<<1 | 3
}

// action writes the record, or counts it as lost.
func (w want) action(l *event.Layout) asm.Instructions {
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R2), asm.Mov.Reg(asm.R7, asm.R3), asm.Mov.Imm(asm.R0, 0)}
	insns = append(insns, w.useStack()...)
	insns = append(insns,
		asm.LoadMapPtr(asm.R1, 0).WithReference(RingName),
		asm.Mov.Imm(asm.R2, int32(l.Size)),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "full"),
		asm.Mov.Imm(asm.R1, int32(l.ID)),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	)
	for _, c := range l.Copies() {
		insns = append(insns, copyBytes(c)...)
	}
	value, presence := l.Slot(0)
	insns = append(insns,
		asm.StoreMem(asm.R0, int16(value), asm.R7, asm.DWord),
		asm.StoreImm(asm.R0, int16(presence), 1, asm.Byte),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)
	return append(insns, countLost(l.Probe)...)
}

// copyBytes copies from the event (R6) to the record (R0) in the largest steps that the alignment of both allows.
func copyBytes(c event.Copy) asm.Instructions {
	var insns asm.Instructions
	for done := 0; done < c.Size; {
		step := 8
		for step > c.Size-done || (c.From+done)%step != 0 || (c.To+done)%step != 0 {
			step /= 2
		}
		width := map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}[step]
		insns = append(insns,
			asm.LoadMem(asm.R1, asm.R6, int16(c.From+done), width),
			asm.StoreMem(asm.R0, int16(c.To+done), asm.R1, width))
		done += step
	}
	return insns
}

func countLost(p *event.Probe) asm.Instructions {
	name, offset := LostCounter(p)
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("full"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, 0).WithReference(name),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, int16(offset)),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// rejectAll is code that wants no event.
func rejectAll() *Code {
	return &Code{
		Filter: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		Action: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
}

// writeToNull is code that no kernel accepts, and that has an effect, without which it would be removed.
func writeToNull() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.StoreImm(asm.R0, 0, 0, asm.Word), asm.Return()}
}

// The spans decide what is captured and when; a presence bit alone wants nothing.
func TestStages(t *testing.T) {
	c := load(t)
	p := c.Match("nvme:complete_rq")[0]
	status, latency, ctrl := p.Field("status"), p.Field("latency"), p.Field("ctrl")
	r := c.request(Request{Probe: p, Code: &Code{
		Before: []Span{spanOf(status), {Offset: ctrl.Offset + ctrl.Type.Size - 1, Size: 1}, {Offset: p.Field("disk").Presence.Offset, Size: 1}},
		After:  []Span{spanOf(status), spanOf(latency)},
	}})
	got := r.wanted()
	for _, f := range p.Fields {
		stage := map[*event.Field]byte{status: stageBefore, ctrl: stageBefore, latency: stageAfter}[f]
		if got[f.Offset] != stage {
			t.Errorf("%s is wanted in stage %d, want %d", f.Name, got[f.Offset], stage)
		}
	}
}

// The largest events leave generated code least of the stack.
func TestStackLeft(t *testing.T) {
	little := map[string]int{
		"nvme:setup_cmd": 88, "ib:modify_qp": 88, "mlx5:modify_qp": 96, "rdma:qp": 104, "ib:reg_mr": 104, "mlx5:reg_user_mr_dmabuf": 112,
		"nvme:complete_rq": 120, "mlx5:reg_user_mr": 120, "ib:dereg_mr": 136,
	}
	c := load(t)
	least := rewrite.StackSize
	for _, p := range c.Probes() {
		left, err := c.StackLeft(p)
		if err != nil || left >= rewrite.StackSize || left%8 != 0 {
			t.Errorf("%s: %d bytes left, %v", p, left, err)
		}
		least = min(least, left)
		if want, ok := little[p.String()]; left != want && (ok || left < 144) {
			t.Errorf("%s leaves %d bytes of the stack, want %d, or 144 at least of all that are not named here", p, left, want)
		}
	}
	if least != LeastStack {
		t.Errorf("the least is %d, want %d", least, LeastStack)
	}
}

// The error for rejected code has the kernel's reason and the text of the program; nothing is left behind.
func TestRejectedCode(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	attach(t, h, Request{Probe: p, Code: rejectAll()}) // skips without privileges
	bad := rejectAll()
	bad.Text = "test:1: the broken clause"
	bad.Filter = writeToNull()
	before := openFiles(t)
	_, err := Attach(context.Background(), h, []Request{{Probe: p, Code: bad}}, AttachOptions{})
	var rejected *RejectedError
	if !errors.As(err, &rejected) || rejected.Probe != p {
		t.Fatalf("%v, want a RejectedError of %s", err, p)
	}
	var answer *ebpf.VerifierError
	if !errors.As(err, &answer) || !strings.Contains(strings.Join(answer.Log, "\n"), bad.Text) {
		t.Errorf("%+v, want a log that quotes %q", answer, bad.Text)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Code may use maps of the caller; the caller keeps them.
func TestMapsOfTheCaller(t *testing.T) {
	h := detect(t)
	p := h.catalog.Match("syscall:enter")[0]
	attach(t, h, Request{Probe: p, Code: rejectAll()}) // skips without privileges
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	code := rejectAll()
	code.Filter = asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, 0).WithReference("mine"),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
	// A map that no code refers to is no error.
	s, err := Attach(context.Background(), h, []Request{{Probe: p, Code: code, Counted: true}},
		AttachOptions{Maps: map[string]*ebpf.Map{"mine": m, "unused": m}})
	if err != nil {
		t.Fatal(err)
	}
	openFiles(t) // makes system calls
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	losses, err := s.Losses()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var n uint64
	if err := m.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	if l := losses[0]; n == 0 || l.Rejected != n || l.Passed != 0 || l.Events != n {
		t.Errorf("the filter ran %d times, counted %+v", n, l)
	}
}

package rewrite

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// flowOf returns the flow of instructions.
func flowOf(t *testing.T, insns asm.Instructions) *Flow {
	t.Helper()
	f, err := New(insns)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// text returns the instructions of a flow, one a line.
func (f *Flow) text(t *testing.T) string {
	t.Helper()
	insns, err := f.Function("f")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, ins := range insns {
		fmt.Fprintln(&b, ins)
	}
	return b.String()
}

func checkText(t *testing.T, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n") + "\n"; got != w {
		t.Errorf("got\n%swant\n%s", got, w)
	}
}

// section holds the constants.
const section = ".rodata"

// constant loads a byte of the constants.
func constant(dst asm.Register, at int) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapValue(dst, 0, uint32(at)).WithReference(section),
		asm.LoadMem(dst, dst, 0, asm.Byte),
	}
}

// Instructions that cannot be a function are refused, with their number.
func TestFlowErrors(t *testing.T) {
	for want, insns := range map[string]asm.Instructions{
		"instruction 1 is invalid":      {asm.Mov.Imm(asm.R0, 0), {OpCode: asm.InvalidOpCode}},
		"instruction 0 jumps nowhere: ": {asm.Ja.Label("missing"), asm.Return()},
	} {
		if _, err := New(insns); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	far := asm.Instructions{asm.JEq.Imm(asm.R1, 0, "end")}
	for range 1 << 15 {
		far = append(far, asm.Mov.Imm(asm.R0, 0))
	}
	far = append(far, asm.Return().WithSymbol("end"))
	_, err := flowOf(t, far).Function("f")
	if want := "a jump over 32768 instructions, at most 32767 are possible"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What a constant rules out is gone, with all that led to it, and 64-bit constants count twice in jumps.
func TestFold(t *testing.T) {
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	insns = append(insns, constant(asm.R2, 1)...)
	insns = append(insns,
		asm.JNE.Imm(asm.R2, 1, "unwanted"),
		asm.LoadMem(asm.R3, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.RFP, -8, asm.R3, asm.DWord))
	insns = append(insns, constant(asm.R2, 0)...)
	unwanted := len(insns) - 2
	insns[unwanted] = insns[unwanted].WithSymbol("unwanted")
	insns = append(insns,
		asm.JEq.Imm(asm.R2, 1, "end"),
		asm.LoadMem(asm.R4, asm.R6, 16, asm.DWord),
		asm.JEq.Imm(asm.R4, 0, "end"),
		asm.LoadImm(asm.R5, 1<<40, asm.DWord),
		asm.StoreMem(asm.RFP, -16, asm.R5, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return())
	f := flowOf(t, insns)
	f.Fold(section, Constants{Values: []byte{0, 1}})
	checkText(t, f.text(t),
		"MovReg dst: r6 src: r1",
		"LdXMemDW dst: r3 src: r6 off: 8 imm: 0",
		"StXMemDW dst: rfp src: r3 off: -8 imm: 0",
		"LdXMemDW dst: r4 src: r6 off: 16 imm: 0",
		"JEqImm dst: r4 off: 3 imm: 0",
		"LdImmDW dst: r5 imm: 1099511627776",
		"StXMemDW dst: rfp src: r5 off: -16 imm: 0",
		"MovImm dst: r0 imm: 0",
		"Exit")
	f = flowOf(t, insns)
	f.Fold(section, Constants{Values: []byte{1, 0}})
	checkText(t, f.text(t), "MovImm dst: r0 imm: 0", "Exit")
}

// A constant that takes long to find out is asked for only where a program can read it, and compared without a sign.
func TestFoldLate(t *testing.T) {
	for _, test := range []struct {
		jump asm.JumpOp
		with int32
		want bool
	}{
		{asm.JGT, 3, true}, {asm.JGT, 4, false}, {asm.JGE, 4, true}, {asm.JGE, 5, false},
		{asm.JLT, 5, true}, {asm.JLT, 4, false}, {asm.JLE, 4, true}, {asm.JLE, 3, false},
		{asm.JLT, -1, true}, {asm.JGT, -1, false},
	} {
		for _, wanted := range []byte{0, 1} {
			insns := constant(asm.R2, 0)
			insns = append(insns, asm.JEq.Imm(asm.R2, 0, "end"))
			insns = append(insns, constant(asm.R2, 1)...)
			insns = append(insns,
				test.jump.Imm(asm.R2, test.with, "end"),
				asm.FnKtimeGetNs.Call(),
				asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
				asm.Return())
			asked := byte(0)
			f := flowOf(t, insns)
			f.Fold(section, Constants{Values: []byte{wanted, 0}, Late: map[int64]func() byte{1: func() byte { asked = 1; return 4 }}})
			want := []string{"MovImm dst: r0 imm: 0", "Exit"}
			if wanted == 1 && !test.want {
				want = append([]string{"Call FnKtimeGetNs"}, want...)
			}
			checkText(t, f.text(t), want...)
			if asked != wanted {
				t.Errorf("asked: %d, wanted: %d", asked, wanted)
			}
		}
	}
}

// clang joins conditions in a register: what comes of known numbers is known.
func TestFoldComputes(t *testing.T) {
	for _, test := range []struct {
		op   asm.ALUOp
		a, b int32
		want int32
	}{
		{asm.And, 6, 3, 2},
		{asm.Or, 6, 3, 7},
		{asm.Xor, 6, 3, 5},
		{asm.LSh, 6, 3, 48},
		{asm.RSh, -1, 63, 1},
	} {
		insns := asm.Instructions{
			asm.Mov.Imm(asm.R2, test.a),
			asm.Mov.Imm(asm.R3, test.b),
			test.op.Reg(asm.R2, asm.R3),
			asm.JEq.Imm(asm.R2, test.want, "end"),
			asm.FnKtimeGetNs.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		}
		f := flowOf(t, insns)
		f.Fold(section, Constants{})
		checkText(t, f.text(t), "MovImm dst: r0 imm: 0", "Exit")
	}
}

// What only some of the paths to an instruction know is not known there, for jumps in both directions.
func TestFoldMeets(t *testing.T) {
	insns := asm.Instructions{
		asm.Mov.Imm(asm.R2, 0),
		asm.JEq.Imm(asm.R1, 0, "meet"),
		asm.Mov.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R2, 1, "end").WithSymbol("meet"),
		asm.Mov.Imm(asm.R2, 1),
		asm.Ja.Label("meet"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
	f := flowOf(t, insns)
	f.Fold(section, Constants{})
	if len(f.Insns) != len(insns) {
		t.Errorf("got\n%s", f.text(t))
	}
}

// Loads and stores on the stack use the frame pointer, where all paths have the same address.
func TestFoldDirect(t *testing.T) {
	f := flowOf(t, asm.Instructions{
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -64),
		asm.Mov.Reg(asm.R9, asm.R2),
		asm.StoreMem(asm.R9, 8, asm.R1, asm.DWord),
		asm.LoadMem(asm.R3, asm.R9, 16, asm.Word),
		asm.JEq.Imm(asm.R3, 0, "meet"),
		asm.Add.Imm(asm.R9, 8),
		asm.LoadMem(asm.R0, asm.R9, 0, asm.DWord).WithSymbol("meet"),
		asm.Return(),
	})
	f.Fold(section, Constants{})
	got := f.text(t)
	for _, want := range []string{"StXMemDW dst: rfp src: r1 off: -56", "LdXMemW dst: r3 src: rfp off: -48", "LdXMemDW dst: r0 src: r9 off: 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A helper reads as many registers as it takes arguments: what was left in the others is gone. A helper without a known number, and a
// function, may read them all.
func TestFoldArguments(t *testing.T) {
	for _, test := range []struct {
		name string
		call asm.Instruction
		left int // of the five
	}{
		{"no argument", asm.FnKtimeGetNs.Call(), 0},
		{"two", asm.FnMapLookupElem.Call(), 2},
		{"three", asm.FnRingbufReserve.Call(), 3},
		{"four", asm.FnMapUpdateElem.Call(), 4},
		{"all", asm.FnPerfEventOutput.Call(), 5},
		{"not known", asm.FnSysBpf.Call(), 5},
		{"a function", asm.Call.Label("f"), 5},
	} {
		var insns asm.Instructions
		for r := asm.R1; r <= asm.R5; r++ {
			insns = append(insns, asm.Mov.Imm(r, 7))
		}
		f := flowOf(t, append(insns, test.call, asm.Mov.Imm(asm.R0, 0), asm.Return()))
		f.Fold(section, Constants{})
		if left := len(f.Insns) - 3; left != test.left {
			t.Errorf("%s: got\n%s", test.name, f.text(t))
		}
	}
}

// caller calls f with R6 and R7 alive after it, and uses 16 bytes of stack.
var caller = asm.Instructions{
	asm.Mov.Reg(asm.R6, asm.R1),
	asm.LoadMem(asm.R7, asm.R6, 0, asm.DWord),
	asm.Mov.Reg(asm.R2, asm.RFP),
	asm.Add.Imm(asm.R2, -16),
	asm.Call.Label("f"),
	asm.JEq.Imm(asm.R0, 0, "end"),
	asm.StoreMem(asm.R6, 0, asm.R7, asm.DWord),
	asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
	asm.Return(),
}

// A body gets registers that are free, and stack below its caller's; its ends lead to what follows the call.
func TestSplice(t *testing.T) {
	f := flowOf(t, caller)
	f.Splice("f", flowOf(t, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R2),
		asm.JEq.Imm(asm.R6, 0, "no"),
		asm.StoreImm(asm.RFP, -8, 5, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapLookupElem.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("no"),
		asm.Return(),
	}), 16)
	f.Fold(section, Constants{})
	checkText(t, f.text(t),
		"MovReg dst: r6 src: r1",
		"LdXMemDW dst: r7 src: r6 off: 0 imm: 0",
		"MovReg dst: r2 src: rfp",
		"AddImm dst: r2 imm: -16",
		"MovReg dst: r9 src: r2",
		"JEqImm dst: r9 off: 6 imm: 0",
		"StMemW dst: rfp src: r0 off: -24 imm: 5",
		"MovReg dst: r2 src: rfp",
		"AddImm dst: r2 imm: -16",
		"AddImm dst: r2 imm: -8",
		"Call FnMapLookupElem",
		"Ja off: 1",
		"MovImm dst: r0 imm: 0",
		"JEqImm dst: r0 off: 1 imm: 0",
		"StXMemDW dst: r6 src: r7 off: 0 imm: 0",
		"MovImm dst: r0 imm: 0",
		"Exit")
}

// Registers that the caller needs, and the body has none in the place of, are saved below both frames.
func TestSpliceSaves(t *testing.T) {
	f := flowOf(t, caller)
	f.Splice("f", flowOf(t, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.JEq.Imm(asm.R8, 0, "no"),
		asm.Add.Reg(asm.R6, asm.R7),
		asm.Mov.Reg(asm.R0, asm.R6),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("no"),
		asm.Return(),
	}), 16)
	f.Fold(section, Constants{})
	checkText(t, f.text(t),
		"MovReg dst: r6 src: r1",
		"LdXMemDW dst: r7 src: r6 off: 0 imm: 0",
		"MovReg dst: r2 src: rfp",
		"AddImm dst: r2 imm: -16",
		"StXMemDW dst: rfp src: r7 off: -32 imm: 0",
		"MovReg dst: r9 src: r1",
		"MovReg dst: r8 src: r2",
		"StXMemW dst: rfp src: r9 off: -20 imm: 0",
		"Call FnKtimeGetNs",
		"MovReg dst: r7 src: r0",
		"JEqImm dst: r7 off: 3 imm: 0",
		"AddReg dst: r9 src: r8",
		"MovReg dst: r0 src: r9",
		"Ja off: 1",
		"MovImm dst: r0 imm: 0",
		"LdXMemDW dst: r7 src: rfp off: -32 imm: 0",
		"JEqImm dst: r0 off: 1 imm: 0",
		"StXMemDW dst: r6 src: r7 off: 0 imm: 0",
		"MovImm dst: r0 imm: 0",
		"Exit")
}

// A body must find its stack and room for the registers below the caller's frame; StackLeft returns what it finds in any case.
func TestSpliceStack(t *testing.T) {
	end := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	three := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Reg(asm.R7, asm.R2), asm.Mov.Reg(asm.R8, asm.R2)}
	calling := append(three, asm.FnKtimeGetNs.Call())
	word := asm.Instructions{asm.StoreImm(asm.RFP, -8, 0, asm.Word)}
	const no = "520 bytes of stack are used, a program can have 512"
	for _, test := range []struct {
		name  string
		body  asm.Instructions
		frame int
		err   string
	}{
		{"room for registers", append(calling, end...), StackSize - 8, ""},
		{"no room for registers", append(calling, end...), StackSize, no},
		{"registers of calls that it does not make", append(three, end...), StackSize, ""},
		{"stack", append(word, end...), StackSize - 8, ""},
		{"no stack", append(word, end...), StackSize, no},
		{"frame pointer", append(asm.Instructions{asm.StoreMem(asm.RFP, -8, asm.RFP, asm.DWord)}, end...), 16,
			"the frame pointer is used otherwise than for loads and stores"},
	} {
		f := flowOf(t, caller)
		err := f.Splice("f", flowOf(t, test.body), test.frame)
		if fmt.Sprint(err) != cmp.Or(test.err, "<nil>") || Calls(f.Insns, "f") != (err != nil) {
			t.Errorf("%s: %v, got\n%s", test.name, err, f.text(t))
		}
	}
	if left := flowOf(t, caller).StackLeft("f", 16); left != StackSize-16-2*8 {
		t.Errorf("%d bytes are left", left)
	}
}

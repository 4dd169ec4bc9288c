package exec

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"trace/lang/check"
	"trace/lang/codegen"
	"trace/lang/codegen/bpftest"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/plan"
	"trace/probes/filetest"
	"trace/probes/symbols"
)

func checkMessage(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// What the kernel refuses is reported with what was tried.
func TestMessagesOfTheKernel(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	checkMessage(t, filetest.With(t, 1, func() error { _, err := newFence(); return err }), "map fence: ")
	f, err := newFence()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	checkMessage(t, f.wait(), "wait for BPF programs: ")
	checkMessage(t, (&turns{word: f.inner}).settle(), "turn of the maps: ")

	run := runStacks(t, plan.CompareExchange, `syscall:enter / nr == getppid && pid == PID / { @[kstack] = count() }`)
	checkMessage(t, filetest.With(t, 0, func() error { return run.openStacks(Options{Names: symbols.NewNames(1)}) }), "kstack: ")
	mapped := runStacks(t, plan.CompareExchange, `syscall:enter / nr == getppid && pid == PID / { @[ustack] = count() }`)
	checkMessage(t, filetest.With(t, 0, func() error { return mapped.openStacks(Options{Names: symbols.NewNames(1)}) }), "ustack: ")
	for call, want := range map[string]string{"ksym(1)": "ksym and kaddr: ", "usym(1)": "usym: "} {
		p, err := compile("program", "nvme:setup_rq { print("+call+") }", langtest.Catalog, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkMessage(t, filetest.With(t, 0, func() error { _, err := openSymbols(symbols.NewNames(1), nil, p); return err }), want)
	}
	for _, m := range []*ebpf.Map{run.kernel[codegen.CountersName], run.kernel[codegen.StackCountsName]} {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = run.MapLosses()
	checkMessage(t, err, "counters of @: ")
	_, err = run.StackLosses()
	checkMessage(t, err, "counters of stacks: ")
}

func TestMessages(t *testing.T) {
	s := &kernelStore{KernelMap: &plan.KernelMap{Map: &ir.Map{Name: "@x"}}}
	checkMessage(t, s.update(nil, 1, false), "@x is aggregated in the kernel")
	program, err := compile("program", "begin { print(1) }", langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	divided, err := plan.New(program, plan.Options{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := Start(divided, Options{Sink: mute{}, Now: func() uint64 { return 1 }, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	checkMessage(t, run.PrintMap(mute{}, "@c", 0, ""), "there is no map @c: the program has none")
}

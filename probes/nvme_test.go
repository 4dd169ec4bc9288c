package probes

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trace/probes/event"
)

// Each NVMe command passes the program that remembers its beginning: that asks the kernel for what somebody wants, and keeps no more.
func TestNvmeInflight(t *testing.T) {
	const now, read, task, user, comm = asm.FnKtimeGetNs, asm.FnProbeReadKernel, asm.FnGetCurrentPidTgid, asm.FnGetCurrentUidGid, asm.FnGetCurrentComm
	c := load(t)
	p := c.Match("nvme:complete_rq")[0]
	for _, test := range []struct {
		field   string
		asks    []asm.BuiltinFunc
		mapName string
	}{
		{"latency", []asm.BuiltinFunc{now}, "nvme_inflight_times"},
		{"device_latency", []asm.BuiltinFunc{now}, "nvme_inflight_times"},
		{"opcode", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
		{"cdw10", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
		{"bytes", []asm.BuiltinFunc{now, read}, "nvme_inflight"},
	} {
		prog := specialized(t, c, p, "raw_tp_nvme_inflight", test.field)
		if got := asked(prog); !slices.Equal(got, test.asks) {
			t.Errorf("for %s the kernel is asked %v, expected %v", test.field, got, test.asks)
		}
		for _, name := range []string{"nvme_inflight", "nvme_inflight_times"} {
			for _, program := range []string{"raw_tp_nvme_inflight", "raw_tp_nvme_cqe", "raw_tp_nvme_complete_rq"} {
				prog := specialized(t, c, p, program, test.field)
				if got, want := refersTo(prog.Instructions, name), name == test.mapName; got != want {
					t.Errorf("for %s, %s uses %s: %v, expected %v", test.field, program, name, got, want)
				}
			}
		}
	}
	// A follower of attempts reads the request, too.
	for field, own := range map[string]asm.BuiltinFunc{"pid": task, "uid": user, "comm": comm} {
		got := asked(specialized(t, c, p, "raw_tp_nvme_inflight", field))
		for _, fn := range []asm.BuiltinFunc{task, user, comm} {
			if slices.Contains(got, fn) != (fn == own) {
				t.Errorf("for %s the kernel is asked %v", field, got)
			}
		}
	}
}

// An event that wants nothing of the submission neither reads it nor looks for it.
func TestNvmeWithoutSubmission(t *testing.T) {
	c := load(t)
	for _, test := range []struct{ probe, program string }{
		{"nvme:setup_cmd", "raw_tp_nvme_setup_cmd"},
		{"nvme:complete_rq", "raw_tp_nvme_complete_rq"},
		{"nvme:sq", "raw_tp_nvme_sq"},
	} {
		prog := specialized(t, c, c.Match(test.probe)[0], test.program, "rq")
		if got := asked(prog); len(got) > 0 {
			t.Errorf("%s asks the kernel %v", test.probe, got)
		}
		if refersTo(prog.Instructions, "nvme_inflight") || refersTo(prog.Instructions, "nvme_inflight_times") {
			t.Errorf("%s looks for a submission", test.probe)
		}
	}
}

// specialized returns a program for a request that delivers one field.
func specialized(t *testing.T, c *Catalog, p *event.Probe, program, field string) *ebpf.ProgramSpec {
	t.Helper()
	return specializedFor(t, c, hostConstants{}, p, program, field)
}

func specializedFor(t *testing.T, c *Catalog, host hostConstants, p *event.Probe, program, field string) *ebpf.ProgramSpec {
	t.Helper()
	req, _ := want{probe: p, fields: []*event.Field{p.Field(field)}}.request(0)
	r := c.request(req)
	object, err := c.objects[p.Group].whole()
	if err != nil {
		t.Fatal(err)
	}
	prog := object.Programs[program].Copy()
	if _, err := specialize(prog, rawTracepoint{}, []*request{r}, constantsFor(object, host, r)); err != nil {
		t.Fatal(err)
	}
	return prog
}

// asked returns the functions of the kernel that a program calls, each once, except those for maps and the ring buffer.
func asked(prog *ebpf.ProgramSpec) (all []asm.BuiltinFunc) {
	for _, ins := range prog.Instructions {
		if !ins.IsBuiltinCall() {
			continue
		}
		switch fn := asm.BuiltinFunc(ins.Constant); fn {
		case asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnMapDeleteElem, asm.FnRingbufReserve, asm.FnRingbufSubmit:
		default:
			all = append(all, fn)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A command that failed may come again, so what is known of it is kept. Whether it comes is up to the driver: if it never does, the next
// command in its request is not taken for it, and neither is the end of one that was not seen to begin.
func TestNvmeRetryThatNeverComes(t *testing.T) {
	const first, next = 100, 200 // when the request was allocated
	const ok, failed, failedForGood = 0, 0x6, 0x4006
	type state struct {
		attempt uint32
		of      string // whose first attempt total_latency counts from; "" if nothing is kept
	}
	for _, test := range []struct {
		name      string
		after     func(d *driver)
		want      state
		unmatched uint64
	}{
		{"never", func(*driver) {}, state{1, "first"}, 0},
		{"it comes", func(d *driver) { d.submit(first, 1) }, state{2, "first"}, 0},
		{"another command comes", func(d *driver) { d.submit(next, 0) }, state{1, "next"}, 0},
		{"another attempt of another command comes", func(d *driver) { d.submit(next, 1) }, state{0, "next"}, 0},
		{"another command comes and ends", func(d *driver) { d.submit(next, 0); d.end(next, ok) }, state{}, 0},
		{"another command comes at the same time and ends", func(d *driver) { d.submit(first, 0); d.end(first, ok) }, state{}, 0},
		{"another command ends, its submission was skipped", func(d *driver) { d.end(next, ok) }, state{}, 1},
		{"another command fails, its submission was skipped", func(d *driver) { d.end(next, failed) }, state{}, 1},
		{"its path is gone, so it ends once more", func(d *driver) { d.end(first, failedForGood) }, state{}, 0},
	} {
		eachWayToKeep(t, test.name, func(t *testing.T, fullTables bool) {
			d := newDriver(t, fullTables, "nvme:complete_rq", "total_latency")
			d.submit(first, 0)
			began := d.kept().First
			d.end(first, failed)
			test.after(d)
			var got state
			if e := d.kept(); e != nil {
				got = state{e.Attempt, "next"}
				if e.First == began {
					got.of = "first"
				}
			}
			if got != test.want {
				t.Errorf("kept %+v, want %+v", got, test.want)
			}
			if n := d.counts(); n[countUnmatched] != test.unmatched || n[countInflightFull] != 0 {
				t.Errorf("counted %v, want %d without a beginning", n, test.unmatched)
			}
		})
	}
}

// A command that waits for another attempt is not in flight, and the one that has its request instead is so once.
func TestNvmeDepthWithoutRetry(t *testing.T) {
	eachWayToKeep(t, "depth", testNvmeDepthWithoutRetry)
}

func testNvmeDepthWithoutRetry(t *testing.T, fullTables bool) {
	d := newDriver(t, fullTables, "nvme:setup_cmd", "queue_depth")
	for i, step := range []struct {
		do   func()
		want uint32
	}{
		{func() { d.submit(100, 0) }, 1},
		{func() { d.end(100, 0x6) }, 0},
		{func() { d.submit(200, 0) }, 1},
		{func() { d.submit(200, 0) }, 1}, // a busy queue took it back
		{func() { d.end(200, 0) }, 0},
	} {
		step.do()
		if got := d.depth(); got != step.want {
			t.Errorf("after step %d there are %d in flight, want %d", i, got, step.want)
		}
	}
}

// eachWayToKeep runs a test where tables have room, and where a hash keeps all (KEPT in bpf/trace.h).
func eachWayToKeep(t *testing.T, name string, test func(t *testing.T, fullTables bool)) {
	for way, full := range map[string]bool{"table": false, "hash": true} {
		t.Run(name+", in a "+way, func(t *testing.T) { test(t, full) })
	}
}

// A driver hands one request over and ends it, without any disk: the programs run by themselves, and the request is a part of a map, which
// lies in the kernel's memory.
type driver struct {
	t       *testing.T
	loaded  *ebpf.Collection
	probe   *event.Probe
	memory  *ebpf.Map
	address uint64
	places  struct{ allocated, queue, driver uint32 }
}

// inflightTimes is struct inflight_times of nvme.bpf.c.
type inflightTimes struct {
	Started, CQE, First, Allocated uint64
	Attempt, Requeues              uint32
	Timeouts                       uint8
	Counted, Ended, Kept           bool
	_                              [4]byte
}

// inflightSlot is a slot of SLOTTED in trace.h, with these times.
type inflightSlot struct {
	State uint64
	Kept  inflightTimes
}

// slotState is STATE_OF in trace.h: the state of a slot with a key, without owners.
func slotState(key uint64) uint64 { return (key + 1) << 8 }

const (
	hardwareQueue   = 0x1234 // its address
	completeProgram = "raw_tp_nvme_complete_rq"
)

func newDriver(t *testing.T, fullTables bool, probe, field string) *driver {
	t.Helper()
	c := load(t)
	d := &driver{t: t, probe: c.Match(probe)[0]}
	d.findPlaces()
	whole, err := c.objects["nvme"].whole()
	if err != nil {
		t.Fatal(err)
	}
	spec := whole.Copy()
	// No module describes the driver's part of the request here, so it is where nvme_learn would have found it.
	known := spec.Variables["nvme_request_known"]
	if err := known.Set(true); err != nil {
		t.Fatal(err)
	}
	spec.Variables = map[string]*ebpf.VariableSpec{known.Name: known}
	spec.Programs = make(map[string]*ebpf.ProgramSpec)
	programs := []string{"raw_tp_nvme_inflight", "raw_tp_nvme_ended"}
	if d.completes() {
		programs = append(programs, completeProgram)
	}
	for _, name := range programs {
		spec.Programs[name] = specializedFor(t, c, hostConstants{fullTables: fullTables}, d.probe, name, field)
	}
	spec.Programs["locate"] = &ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, 0, 0).WithReference("memory"),
		asm.StoreMem(asm.R1, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}}
	keepMaps(spec)
	spec.Maps[RingName] = &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 16}
	spec.Maps["memory"] = &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4096, MaxEntries: 1}
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps against it
	d.loaded, err = ebpf.NewCollection(spec)
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.loaded.Close)
	d.memory = d.loaded.Maps["memory"]
	d.run("locate")
	memory := make([]byte, 4096)
	if err := d.memory.Lookup(uint32(0), memory); err != nil {
		t.Fatal(err)
	}
	d.address = binary.NativeEndian.Uint64(memory)
	return d
}

// findPlaces asks the running kernel for those in its request. The driver's part is right behind that.
func (d *driver) findPlaces() {
	d.t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		d.t.Skipf("needs the types of the kernel: %v", err)
	}
	var request *btf.Struct
	if err := types.TypeByName("request", &request); err != nil {
		d.t.Skipf("needs a kernel with block devices: %v", err)
	}
	for _, m := range request.Members {
		switch m.Name {
		case "start_time_ns":
			d.places.allocated = m.Offset.Bytes()
		case "mq_hctx":
			d.places.queue = m.Offset.Bytes()
		}
	}
	d.places.driver = request.Size
}

// submit hands the request over, with a command that has failed retries times.
func (d *driver) submit(allocated uint64, retries uint8) {
	d.t.Helper()
	d.write(allocated, retries, 0)
	d.run("raw_tp_nvme_inflight")
}

// end ends the command in the request.
func (d *driver) end(allocated uint64, status uint16) {
	d.t.Helper()
	d.write(allocated, 0, status)
	d.run("raw_tp_nvme_ended")
	if d.completes() {
		d.run(completeProgram)
	}
}

// completes reports whether the end of a command is an event.
func (d *driver) completes() bool { return d.probe.Name == "complete_rq" }

func (d *driver) write(allocated uint64, retries uint8, status uint16) {
	d.t.Helper()
	memory := make([]byte, 4096)
	binary.NativeEndian.PutUint64(memory[d.places.allocated:], allocated)
	binary.NativeEndian.PutUint64(memory[d.places.queue:], hardwareQueue)
	const retriesAt, statusAt = 17, 20 // GUESS_RETRIES and GUESS_STATUS of nvme.bpf.c
	memory[d.places.driver+retriesAt] = retries
	binary.NativeEndian.PutUint16(memory[d.places.driver+statusAt:], status)
	if err := d.memory.Put(uint32(0), memory); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) run(program string) {
	d.t.Helper()
	if _, err := d.loaded.Programs[program].Run(&ebpf.RunOptions{Context: [12]uint64{d.address}}); err != nil {
		d.t.Fatal(err)
	}
}

// kept returns what is kept of the command in the request, or nil.
func (d *driver) kept() *inflightTimes {
	d.t.Helper()
	var found []*inflightTimes
	if table := d.loaded.Maps["nvme_inflight_times_slots"]; table != nil {
		var bucket [4]inflightSlot
		for i := range table.MaxEntries() {
			if err := table.Lookup(i, &bucket); err != nil {
				d.t.Fatal(err)
			}
			for _, slot := range bucket {
				if slot.State == slotState(d.address)+1 {
					found = append(found, &slot.Kept)
				}
			}
		}
	}
	var overflowed inflightSlot
	switch err := d.loaded.Maps["nvme_inflight_times"].Lookup(slotState(d.address), &overflowed); {
	case err == nil:
		found = append(found, &overflowed.Kept)
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		d.t.Fatal(err)
	}
	if len(found) > 1 {
		d.t.Fatalf("the command is kept %d times", len(found))
	}
	if found == nil {
		return nil
	}
	return found[0]
}

func (d *driver) depth() (n uint32) {
	d.t.Helper()
	if err := d.loaded.Maps["nvme_depths"].Lookup(uint64(hardwareQueue), &n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *driver) counts() [counters]uint64 {
	d.t.Helper()
	n, err := (&request{counts: d.loaded.Maps[countsName(d.probe)]}).counted()
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

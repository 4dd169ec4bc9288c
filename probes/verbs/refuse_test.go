//go:build linux

package verbs

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"trace/probes/proc"
	"unsafe"
)

// deviceStruct makes a struct ibv_device in the memory of this process.
func deviceStruct(name, file string) []byte {
	memory := allocate(deviceFile + deviceNameSize)
	copy(memory[deviceName:], name)
	copy(memory[deviceFile:], file)
	return memory
}

// A context that does not fit is refused with what does not fit, once, and counted. Its device is known.
func TestRefused(t *testing.T) {
	function := uint64(reflect.ValueOf(TestRefused).Pointer())
	for what, test := range map[string]struct {
		spoil  func(context []byte)
		why    string
		reason string
	}{
		"abi": {func(c []byte) { binary.NativeEndian.PutUint64(c[abiCompat:], 0x1230) },
			"abi_compat of its struct ibv_context is 0x1230, as in programs for a libibverbs from before 2008", compat},
		"pointer": {func(c []byte) { binary.NativeEndian.PutUint64(c[calls["post_recv"]:], 0x4560) },
			"post_recv of its struct ibv_context is 0x4560, which is in no executable mapping of a file", outside},
	} {
		t.Run(what, func(t *testing.T) {
			d := deviceStruct("rxe7", "uverbs0")
			memory := newContext(device(t), function)
			binary.NativeEndian.PutUint64(memory, uint64(uintptr(unsafe.Pointer(&d[0]))))
			test.spoil(memory)
			var notes []string
			var opens []Open
			f := newFinder(func(text string) { notes = append(notes, text) })
			f.Listen(func(o Open, before bool) { opens = append(opens, o) }, func() { t.Error("it is lost") })
			f.begun = true
			for range 3 {
				lookInto(f, os.Getpid())
				for _, failed := range f.failed {
					failed.since = failed.since.Add(-opening)
				}
			}
			if want := fmt.Sprintf("verbs: process %d is not followed: %s", os.Getpid(), test.why); !slices.Equal(notes, []string{want}) {
				t.Errorf("it reports %q, want %q", notes, want)
			}
			if len(opens) != 1 || opens[0].Refused != test.why || opens[0].Library != "" {
				t.Errorf("it finds %+v", opens)
			}
			if want := "verbs: refused: 1 " + test.reason; f.Refused() != want {
				t.Errorf("%q, want %q", f.Refused(), want)
			}
			clear(memory)
		})
	}
}

// The address that the kernel has for a QP must be of a struct ibv_qp with the kernel's number.
func TestForeignQP(t *testing.T) {
	function := uint64(reflect.ValueOf(TestForeignQP).Pointer())
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	c := newContext(device(t), function)
	memory := qp(c, map[string]uint64{wrStart: function})
	binary.NativeEndian.PutUint32(memory[qpNum:], 17)
	at := uint64(uintptr(unsafe.Pointer(&memory[0])))
	lookAtQP(t, f, memory, 18, false)
	if notes != nil || f.places[wrStart] != nil {
		t.Errorf("at once it reports %q and follows %v", notes, f.places)
	}
	lookAtQP(t, f, memory, 18, true)
	want := fmt.Sprintf("verbs: process %d: ibv_wr_* of QP 18 are not followed: no struct ibv_qp with that number is at %#x, where the kernel has it", os.Getpid(), at)
	if !slices.Equal(notes, []string{want}) || f.places[wrStart] != nil || f.Refused() != "verbs: refused: 1 QPs at other addresses" {
		t.Errorf("it reports %q and follows %v; %q", notes, f.places, f.Refused())
	}
	if lookAtQP(t, f, memory, 17, true); len(f.places[wrStart]) != 1 {
		t.Errorf("with its number it follows %v", f.places)
	}
	clear(memory)
	clear(c)
}

// Programs of 32 bits have other layouts, and nothing above 4 GiB.
func TestNarrow(t *testing.T) {
	low := proc.Mapping{Start: 0x8048000, End: 0xffffe000}
	for name, test := range map[string]struct {
		regions []proc.Mapping
		want    string
	}{
		"32 bits": {[]proc.Mapping{low}, "it executes a program of 32 bits"},
		"64 bits": {[]proc.Mapping{low, {Start: 0x7ffc00000000, End: 0x7ffc00021000}}, "<nil>"},
	} {
		if err := (&target{regions: test.regions}).wide(); fmt.Sprint(err) != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	self := targetOf(t, newFinder(nil), os.Getpid())
	if err := self.wide(); err != nil || len(self.regions) == 0 {
		t.Error(err)
	}
}

// A device is known to a listener with its library, whenever it began to listen, and again if it is opened again.
func TestListen(t *testing.T) {
	function := uint64(reflect.ValueOf(TestListen).Pointer())
	f := newFinder(func(string) {})
	d := deviceStruct("rxe7", "uverbs0")
	memory := newContext(device(t), function)
	binary.NativeEndian.PutUint64(memory, uint64(uintptr(unsafe.Pointer(&d[0]))))
	began := now()
	lookAll(t, f)
	var before, after []Open
	lost := 0
	l := f.Listen(func(o Open, b bool) {
		if b {
			before = append(before, o)
		} else {
			after = append(after, o)
		}
	}, func() { lost++ })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != 1 || before[0].PID != os.Getpid() || before[0].Device != "rxe7" || before[0].Library != self || before[0].Refused != "" ||
		!slices.Equal(before[0].Context, Calls()) {
		t.Errorf("%+v is open before", before)
	}
	f.Made(os.Getpid(), began)
	if lookInto(f, os.Getpid()); after != nil || lost != 0 {
		t.Errorf("%+v is opened, %d are lost", after, lost)
	}
	f.Made(os.Getpid(), now())
	if lookInto(f, os.Getpid()); len(after) != 1 || after[0].Library != self || lost != 0 {
		t.Errorf("%+v is opened again, %d are lost", after, lost)
	}
	const ended = 1 << 30
	f.Made(ended, now())
	for range 2 {
		if lookInto(f, ended); lost != 1 {
			t.Errorf("%d are lost", lost)
		}
	}
	f.Made(ended, now())
	if err := l.Close(); err != nil || lost != 2 {
		t.Fatalf("%v, %d are lost", err, lost)
	}
	if lookInto(f, ended); lost != 2 {
		t.Errorf("%d are lost after the end", lost)
	}
	clear(memory)
	for range 2 {
		before[0].add(qpObject, map[string]place{wrStart: {}, "wr_send": {}})
	}
	if !slices.Equal(before[0].QPs, []string{"wr_send", wrStart}) {
		t.Errorf("functions of a QP: %v", before[0].QPs)
	}
}

func TestProviderOf(t *testing.T) {
	for library, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0": "mlx5", "/usr/lib/libibverbs/librxe-rdmav34.so": "rxe", "/usr/lib/libbnxt_re-rdmav57.so": "bnxt_re",
		"/usr/bin/program": "", "": "",
	} {
		if got := providerOf(library); got != want {
			t.Errorf("%s: %q, want %q", library, got, want)
		}
	}
}

// The note among others; a broken one ends the search.
func TestBuildID(t *testing.T) {
	note := func(name string, kind uint32, desc string) string {
		pad := func(s string) string { return s + strings.Repeat("\x00", -len(s)&3) }
		head := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
		head = binary.LittleEndian.AppendUint32(head, uint32(len(desc)))
		return string(binary.LittleEndian.AppendUint32(head, kind)) + pad(name) + pad(desc)
	}
	for notes, want := range map[string]string{
		note("GNU\x00", 1, "abcd") + note("GNU\x00", 3, "12345"): "12345", note("Go\x00\x00", 4, "x"): "", "": "",
		note("GNU\x00", 3, "12345")[:18]: "", strings.Repeat("\xff", 12): "",
	} {
		if got := buildIDIn([]byte(notes), binary.LittleEndian); string(got) != want {
			t.Errorf("%q: %q, want %q", notes, got, want)
		}
	}
}

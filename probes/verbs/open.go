//go:build linux

package verbs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An Open is a device that a process has open.
type Open struct {
	PID int `json:"-"`
	FD  int `json:"fd"`
	// Device is the name of the RDMA device, like rxe0; "" if it is unknown.
	Device string `json:"device,omitempty"`
	// Library is the path of the provider's library in the process, and Provider the name in its file name, like mlx5; "" if no context was
	// found, and if the code is in another file. BuildID is hexadecimal, "" if it is unknown.
	Library  string `json:"library,omitempty"`
	Provider string `json:"provider,omitempty"`
	BuildID  string `json:"build_id,omitempty"`
	// Context are the functions that were found in the context, and QPs and CQs those that were found in a QP and in an extended CQ.
	Context []string `json:"context,omitempty"`
	QPs     []string `json:"qps,omitempty"`
	CQs     []string `json:"cqs,omitempty"`
	// Refused is why its calls are not followed; "" if they are.
	Refused string `json:"refused,omitempty"`
}

// followed reports whether its calls are.
func (o Open) followed() bool { return o.Refused == "" }

// newOpen describes a device whose context was found.
func newOpen(pid int, d handle, context []byte, functions map[string]place) *Open {
	o := &Open{PID: pid, FD: d.fd, Device: nameOf(pid, binary.NativeEndian.Uint64(context), deviceName), Context: slices.Sorted(maps.Keys(functions))}
	if o.Device == "" {
		o.Device = d.device()
	}
	p := functions["post_send"]
	o.Library, o.Provider, o.BuildID = p.library, providerOf(p.library), buildIDOf(p.path)
	return o
}

// add adds the functions that were found in an object.
func (o *Open) add(of object, functions map[string]place) {
	list := &o.QPs
	if of.has == startPoll {
		list = &o.CQs
	}
	for call := range functions {
		if i, there := slices.BinarySearch(*list, call); !there {
			*list = slices.Insert(*list, i, call)
		}
	}
}

// device returns the name of the RDMA device of a file, "" if it is unknown.
func (d handle) device() string {
	name, err := os.ReadFile("/sys/class/infiniband_verbs/" + d.name + "/ibdev")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// nameOf reads a name of a struct ibv_device, "" if there is none.
func nameOf(pid int, address uint64, offset int) string {
	name := make([]byte, deviceNameSize)
	if n, err := read(pid, address+uint64(offset), name); err != nil || n < len(name) {
		return ""
	}
	end := bytes.IndexByte(name, 0)
	if end < 0 {
		return ""
	}
	return string(name[:end])
}

// provider is how the libraries of providers are called: libmlx5.so.1.24.44.0, librxe-rdmav34.so.
var provider = regexp.MustCompile(`^lib([a-z0-9_]+)(-rdmav\d+)?\.so`)

func providerOf(library string) string {
	found := provider.FindStringSubmatch(filepath.Base(library))
	if found == nil {
		return ""
	}
	return found[1]
}

// mostNotes bounds the notes of an ELF file that are read.
const mostNotes = 1 << 16

// buildIDOf returns the build id of an ELF file, "" if it has none.
func buildIDOf(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(io.LimitReader(p.Open(), mostNotes))
		if id := buildIDIn(notes, f.ByteOrder); err == nil && id != nil {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// buildIDIn finds NT_GNU_BUILD_ID among notes: elf(5).
func buildIDIn(notes []byte, order binary.ByteOrder) []byte {
	const head, gnuBuildID = 12, 3
	aligned := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= head {
		name, size, kind := order.Uint32(notes), order.Uint32(notes[4:]), order.Uint32(notes[8:])
		at := head + aligned(name)
		next := at + aligned(size)
		if next > uint64(len(notes)) {
			return nil
		}
		if kind == gnuBuildID && string(notes[head:head+name]) == "GNU\x00" {
			return notes[at : at+uint64(size)]
		}
		notes = notes[next:]
	}
	return nil
}

// A Listener hears of the devices that processes open.
type Listener struct {
	finder *Finder
	// opened gets each, with those that were open before. lost is called for each that was closed before it was looked at.
	opened func(o Open, before bool)
	lost   func()
}

// Listen makes the devices known that are open, and those that are opened until the listener is closed.
func (f *Finder) Listen(opened func(o Open, before bool), lost func()) *Listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Listener{f, opened, lost}
	for _, o := range f.opensNow() {
		opened(o, true)
	}
	f.listeners = append(f.listeners, l)
	return l
}

// Close ends it. What was made and not found until now is lost: a process may be opening the device.
func (l *Listener) Close() error {
	l.finder.mu.Lock()
	defer l.finder.mu.Unlock()
	for _, c := range l.finder.contexts {
		for range c.made {
			l.lost()
		}
	}
	l.finder.listeners = slices.DeleteFunc(l.finder.listeners, func(o *Listener) bool { return o == l })
	return nil
}

// Opens returns the devices that processes have open, by process.
func (f *Finder) Opens() []Open {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opensNow()
}

func (f *Finder) opensNow() (all []Open) {
	for self, opens := range f.opens {
		devices, err := devicesOf(self.pid)
		if start, ended := startOf(self.pid); err != nil || ended != nil || start != self.start {
			continue
		}
		for _, o := range opens {
			if slices.Contains(fdsOf(devices), o.FD) {
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, b Open) int {
		if a.PID != b.PID {
			return a.PID - b.PID
		}
		return a.FD - b.FD
	})
	return all
}

// settle keeps what is known of an open device, and makes it known, unless it is known.
func (f *Finder) settle(self process, o Open) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := func(known Open) bool { return known.FD == o.FD && (known.Refused == "" || o.Refused != "") }
	if slices.ContainsFunc(f.opens[self], same) {
		return
	}
	if len(f.opens) >= mostKnown && f.opens[self] == nil {
		maps.DeleteFunc(f.opens, func(p process, _ []Open) bool {
			start, err := startOf(p.pid)
			return err != nil || start != p.start
		})
	}
	others := slices.DeleteFunc(f.opens[self], func(known Open) bool { return known.FD == o.FD })
	if len(others) == len(f.opens[self]) {
		f.contextsOf(self.pid).find(now())
	}
	f.opens[self] = append(others, o)
	for _, l := range f.listeners {
		l.opened(o, !f.begun)
	}
}

// unknown returns the devices whose context was not found, and forgets those that are closed.
func (f *Finder) unknown(self process, devices []handle) []handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.opens[self]; ok {
		f.opens[self] = slices.DeleteFunc(known, func(o Open) bool { return !slices.Contains(fdsOf(devices), o.FD) })
	}
	return slices.DeleteFunc(slices.Clone(devices), func(d handle) bool {
		return slices.ContainsFunc(f.opens[self], func(o Open) bool { return o.FD == d.fd && o.Refused == "" })
	})
}

// reopened forgets the only device of a process whose context was found, if another one was made since: the process has closed the device and
// opened one that has the same descriptor. Of several devices nothing shows which it is.
func (f *Finder) reopened(pid int) {
	start, err := startOf(pid)
	if err != nil || f.unfound(pid) == 0 {
		return
	}
	devices, err := devicesOf(pid)
	if err != nil {
		return
	}
	self := process{pid, start}
	if len(f.unknown(self, devices)) > 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.opens[self]) == 1 {
		delete(f.opens, self)
	}
}

// now is the time by the clock of bpf_ktime_get_ns.
func now() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // it cannot fail
	}
	return uint64(t.Nano())
}

//go:build linux

package verbs

import (
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
func newOpen(t *target, d handle, context []byte, functions map[string]place) *Open {
	o := &Open{PID: t.pid, FD: d.fd, Device: t.nameOf(pointer(context, 0), deviceName), Context: slices.Sorted(maps.Keys(functions))}
	if o.Device == "" {
		o.Device = d.device()
	}
	p := functions["post_send"]
	o.Library, o.Provider = p.name, providerOf(p.name)
	if p.library != nil {
		o.BuildID = p.library.buildID
	}
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

// providerName is how the libraries of providers are called: libmlx5.so.1.24.44.0, librxe-rdmav34.so.
var providerName = regexp.MustCompile(`^lib([a-z0-9_]+)(-rdmav\d+)?\.so`)

func providerOf(library string) string {
	found := providerName.FindStringSubmatch(filepath.Base(library))
	if found == nil {
		return ""
	}
	return found[1]
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
		if start, err := startOf(self.pid); err != nil || start != self.start {
			continue
		}
		for _, o := range opens {
			if deviceOf(self.pid, o.FD, f.devices.numbers()) != "" {
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
func (f *Finder) reopened(t *target) {
	if f.unfound(t.pid) == 0 {
		return
	}
	devices, err := t.open()
	if err != nil || len(f.unknown(t.process, devices)) > 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.opens[t.process]) == 1 {
		delete(f.opens, t.process)
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

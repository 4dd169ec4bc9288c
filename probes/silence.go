//go:build linux

package probes

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"trace/probes/kernel"
)

// A silencer is a switch of the kernel: while it is off, programs stay attached and see nothing.
type silencer struct {
	name, fix string
	open      func() (*kernel.Number, error)
	// ways are those that it may silence, and spares are their programs that go on.
	ways   func(way) bool
	spares func(program) bool
}

func (s *silencer) silences(p program) bool { return s.ways(p.way) && !s.spares(p) }

// silencers returns the switches that are known.
func silencers() []*silencer {
	return []*silencer{
		{ftraceOff, ftraceOn, openFtraceEnabled,
			func(w way) bool { return isTrampoline(w) || isKprobe(w) },
			func(p program) bool { return isKprobe(p.way) && !onFtrace(p.target) }},
		{"/sys/kernel/debug/kprobes/enabled is 0", "echo 1 > /sys/kernel/debug/kprobes/enabled",
			func() (*kernel.Number, error) { return kernel.OpenDebugNumber("kprobes/enabled") },
			isKprobe,
			func(program) bool { return false }},
	}
}

// onFtrace reports whether the kernel calls the kprobes of a function by ftrace, rather than by a breakpoint; false if it is unknown.
func onFtrace(function string) bool {
	list, err := kernel.ReadDebugfs("kprobes/list") // ffffffff8e0ab6b0  k  schedule+0x0    [FTRACE]
	if err != nil {
		return false
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, " "+function+"+0x") && strings.Contains(line, "[FTRACE]") {
			return true
		}
	}
	return false
}

// silence follows the switches that silence programs of a session.
type silence struct {
	mu       sync.Mutex
	switches []*switched
}

// switched is a switch, and the requests with programs that it silences now.
type switched struct {
	*silencer
	file    *kernel.Number // nil until programs are attached that it would silence
	unknown bool           // it cannot be read
	silent  map[*request]bool
}

func newSilence(all []*silencer) *silence {
	s := &silence{}
	for _, one := range all {
		s.switches = append(s.switches, &switched{silencer: one, silent: make(map[*request]bool)})
	}
	return s
}

// look reads the switches, and notes what they silence from now on, or no longer.
func (s *silence) look(requests []*request, n *notes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.switches {
		f.look(requests, n)
	}
}

func (f *switched) look(requests []*request, n *notes) {
	var before, now []string
	off := f.isOff(requests)
	for _, r := range requests {
		switch is := off && (f.silent[r] || r.has(f.silences)); {
		case is && !f.silent[r]:
			f.silent[r] = true
			r.gap()
			now = append(now, r.Probe.String())
		case !is && f.silent[r]:
			delete(f.silent, r)
			before = append(before, r.Probe.String())
		}
	}
	if len(now) > 0 {
		n.add(nil, fmt.Sprintf("the kernel does not run programs of %s, so their events are missing: %s: %s", strings.Join(now, ", "), f.name, f.fix))
	}
	if len(before) > 0 {
		n.add(nil, fmt.Sprintf("the kernel runs programs of %s again: events from before are missing", strings.Join(before, ", ")))
	}
}

// isOff reports whether the switch is off. It is read only if programs are attached that may depend on it.
func (f *switched) isOff(requests []*request) bool {
	if f.unknown || !slices.ContainsFunc(requests, func(r *request) bool { return r.has(func(p program) bool { return f.ways(p.way) }) }) {
		return false
	}
	if f.file == nil {
		file, err := f.open()
		if err != nil {
			f.unknown = true
			return false
		}
		f.file = file
	}
	n, err := f.file.Read()
	return err == nil && n == 0
}

// unheard returns why programs of hooks see nothing now, by the names of the hooks.
func (s *silence) unheard(requests []*request) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := make(map[string]string)
	for _, f := range s.switches {
		if !f.isOff(requests) {
			continue
		}
		for _, r := range requests {
			for _, a := range r.attached {
				if f.silences(a.place) {
					why[a.hook] = fmt.Sprintf("%s, so that the kernel does not run programs of %s (%s)", f.name, a.place.way, f.fix)
				}
			}
		}
	}
	return why
}

// close closes the switches.
func (s *silence) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.switches {
		if f.file != nil {
			f.file.Close()
			f.file, f.unknown = nil, true
		}
	}
}

//go:build linux

package probes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/kernel"
)

// A watcher attaches programs again when a module that was unloaded is loaded again, or a CPU comes online.
type watcher struct {
	notes *notes
	// attached calls a function with everything that is attached, and what could not be; while it runs nothing is added or removed.
	attached func(func([]*batch, []unloaded))
	uevents  *os.File
	done     chan struct{}
}

// changes reports whether programs of the batch go, or are missing, as modules and CPUs come and go.
func (b *batch) changes() bool {
	return b.samples() || slices.ContainsFunc(b.requests, func(r *request) bool { return len(r.absent) > 0 }) ||
		slices.ContainsFunc(b.programs(), func(a *attached) bool { return a.place.way.vanishes() })
}

// programs returns all attached programs.
func (b *batch) programs() (all []*attached) {
	for _, r := range b.requests {
		all = append(all, r.attached...)
	}
	for _, inv := range b.inventories {
		all = append(all, inv.visitors...)
	}
	return all
}

func newWatcher(uevents *os.File, n *notes, attached func(func([]*batch, []unloaded))) *watcher {
	w := &watcher{notes: n, attached: attached, uevents: uevents, done: make(chan struct{})}
	go w.watch()
	return w
}

// watch reads the kernel's messages until stop is called.
func (w *watcher) watch() {
	defer close(w.done)
	message := make([]byte, 1<<16)
	for {
		n, err := w.uevents.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.notes.add(nil, "messages of the kernel were lost: a module that was loaded, or a CPU that came online, may not be traced")
		case err != nil:
			return
		}
		came, read := time.Now(), message[:max(n, 0)]
		if name := kernel.LoadedModule(read); name != "" {
			w.attached(func(batches []*batch, missing []unloaded) { w.loaded(batches, missing, name, came) })
		}
		if cpu, ok := kernel.OnlineCPU(read); ok {
			w.attached(func(batches []*batch, _ []unloaded) { sampleAgain(batches, cpu, came, w.notes) })
		}
	}
}

// stop ends the watching; it may be called with a nil watcher.
func (w *watcher) stop() {
	if w == nil {
		return
	}
	w.uevents.Close()
	<-w.done
}

// loaded attaches to the functions of a module that came at a time. Their calls until now were not seen. What could not be attached without
// the module is noted: programs for it would have to be loaded first.
func (w *watcher) loaded(batches []*batch, missing []unloaded, module string, came time.Time) {
	for _, u := range missing {
		if slices.Contains(u.modules, module) {
			w.notes.add(u.probe, fmt.Sprintf("module %s was loaded at %s, but is not traced: start again", module, clockTime(came)))
		}
	}
	wanted := make(map[string]bool)
	for _, b := range batches {
		for _, a := range b.programs() {
			if a.place.way.vanishes() {
				wanted[a.place.target] = true
			}
		}
		for _, r := range b.requests {
			for _, function := range r.absent {
				wanted[function] = true
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	functions, err := kernel.FunctionsOf(module, wanted)
	if err != nil {
		w.notes.add(nil, fmt.Sprintf("module %s was loaded, but may not be traced: %v", module, err))
		return
	}
	for _, b := range batches {
		for _, r := range b.requests {
			if new := r.leaveOut(functions); len(new) > 0 {
				w.notes.add(r.Probe, fmt.Sprintf("module %s was loaded at %s, but its %s is not traced: start again", module, clockTime(came), strings.Join(new, ", ")))
			}
		}
	}
	for _, b := range batches {
		for _, r := range b.requests {
			again, err := r.reattach(functions)
			switch {
			case err != nil:
				w.notes.add(r.Probe, fmt.Sprintf("module %s was loaded again at %s, but is no longer traced: %v", module, clockTime(came), err))
			case len(again) > 0:
				w.notes.add(r.Probe, fmt.Sprintf("module %s was loaded again: %s not seen from %s to %s",
					module, strings.Join(again, ", "), clockTime(came), clockTime(time.Now())))
			}
		}
	}
	for _, b := range batches {
		for _, inv := range b.inventories {
			inv.reattach(functions)
		}
	}
}

// leaveOut counts that events of functions that were left out, because they did not exist, are missing from now on. It returns these.
func (r *request) leaveOut(functions map[string]bool) (found []string) {
	for _, function := range r.absent {
		if functions[function] {
			found = append(found, function)
		}
	}
	if len(found) > 0 {
		r.gap()
	}
	return found
}

// unloaded is a probe that is not attached, because one of these modules is not loaded.
type unloaded struct {
	probe   *event.Probe
	modules []string
}

func clockTime(t time.Time) string { return t.Format("15:04:05.000000") }

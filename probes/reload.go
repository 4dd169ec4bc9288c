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

	"trace/probes/kernel"
)

// A watcher attaches programs again when a module that was unloaded is loaded again.
type watcher struct {
	notes *notes
	// attached calls a function with everything that is attached; meanwhile nothing is added or removed.
	attached func(func([]*batch))
	uevents  *os.File
	done     chan struct{}
}

// vanishing reports whether programs of the batch go when a module is unloaded.
func (b *batch) vanishing() bool {
	return slices.ContainsFunc(b.programs(), func(a *attached) bool { return a.place.way.vanishes() })
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

func newWatcher(uevents *os.File, n *notes, attached func(func([]*batch))) *watcher {
	w := &watcher{notes: n, attached: attached, uevents: uevents, done: make(chan struct{})}
	go w.watch()
	return w
}

// watch reads the kernel's messages about modules until stop is called.
func (w *watcher) watch() {
	defer close(w.done)
	message := make([]byte, 1<<16)
	for {
		n, err := w.uevents.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.notes.add(nil, "messages of the kernel about modules were lost: a module that was loaded again may not be traced")
		case err != nil:
			return
		}
		if name := kernel.LoadedModule(message[:max(n, 0)]); name != "" {
			came := time.Now()
			w.attached(func(batches []*batch) { w.reattach(batches, name, came) })
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

// reattach attaches to the functions of a module that came at a time. Their calls until now were not seen.
func (w *watcher) reattach(batches []*batch, module string, came time.Time) {
	wanted := make(map[string]bool)
	for _, b := range batches {
		for _, a := range b.programs() {
			if a.place.way.vanishes() {
				wanted[a.place.target] = true
			}
		}
	}
	functions, err := kernel.FunctionsOf(module, wanted)
	if err != nil {
		w.notes.add(nil, fmt.Sprintf("module %s was loaded, but may not be traced: %v", module, err))
		return
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

func clockTime(t time.Time) string { return t.Format("15:04:05.000000") }

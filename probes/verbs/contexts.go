//go:build linux

package verbs

import (
	"maps"
	"slices"
)

// contexts matches the contexts that the kernel made for a process with those that were found in it. Each that was made is found or lost. The
// times are in ns by CLOCK_MONOTONIC.
type contexts struct {
	made  []uint64 // and not found
	found []uint64 // before the kernel's report came, or made before anybody watched
}

// mostMade bounds how many contexts of a process are waited for. A program may open and close a device without a pause.
const mostMade = 4096

// make notes that the kernel made a context. It reports whether that is waited for.
func (c *contexts) make(at uint64) bool {
	i := slices.IndexFunc(c.found, func(found uint64) bool { return found > at })
	switch {
	case i >= 0:
		c.found = slices.Delete(c.found, i, i+1)
	case len(c.made) == mostMade:
		return false
	default:
		c.made = append(c.made, at)
	}
	return true
}

// find notes that a context was found: the latest one, as an older one would have been closed.
func (c *contexts) find(at uint64) {
	for i, made := range slices.Backward(c.made) {
		if made < at {
			c.made = slices.Delete(c.made, i, i+1)
			return
		}
	}
	c.found = append(c.found, at)
}

// contextsOf returns what is known of the contexts of a process.
func (f *Finder) contextsOf(pid int) *contexts {
	if f.contexts[pid] == nil {
		if len(f.contexts) >= mostKnown {
			maps.DeleteFunc(f.contexts, func(_ int, c *contexts) bool { return len(c.made) == 0 })
		}
		f.contexts[pid] = new(contexts)
	}
	return f.contexts[pid]
}

// Made notes that the kernel made a context for a process at a time, in ns by CLOCK_MONOTONIC. [Finder.Look] finds it.
func (f *Finder) Made(pid int, at uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.contextsOf(pid).make(at) {
		return
	}
	for _, l := range f.listeners {
		l.lost()
	}
}

// unfound returns how many contexts of a process were made and not found.
func (f *Finder) unfound(pid int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.contexts[pid] == nil {
		return 0
	}
	return len(f.contexts[pid].made)
}

// lose counts as lost what was made for a process and not found.
func (f *Finder) lose(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.contexts[pid] == nil {
		return
	}
	for range f.contexts[pid].made {
		for _, l := range f.listeners {
			l.lost()
		}
	}
	f.contexts[pid].made = nil
}

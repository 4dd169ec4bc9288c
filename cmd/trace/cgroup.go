//go:build linux

package main

// tellCgroups says which cgroups of the program are not there yet: with a mistake in a path nothing would ever match.
func (t *tracer) tellCgroups() {
	for _, path := range t.program.Cgroups() {
		if _, ok := t.program.CgroupID(path); !ok && !t.quiet {
			t.note("there is no cgroup %s now: events are compared with it by path, in user space", path)
		}
	}
}

// tellChangedCgroups says which cgroups of the program were made anew meanwhile: the new one has another id, so its events were not
// matched. This is a loss, and so never silent.
func (t *tracer) tellChangedCgroups() {
	for _, path := range t.program.Cgroups() {
		id, ok := t.program.CgroupID(path)
		if now, there := t.catalog.Cgroups().ID(path); ok && there && now != id {
			t.note("cgroup %s was removed and made again while tracing: only the first one was compared with (cgroup startsWith %[1]q sees both)", path)
		}
	}
}

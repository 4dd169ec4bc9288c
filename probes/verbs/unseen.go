//go:build linux

package verbs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trace/probes/proc"
)

// A writer is a library that writes the queues of a device itself, past libibverbs.
type writer struct {
	file string // how its name begins
	with string // the library that must be mapped, too; "": none
	why  string
}

// writers are the libraries that are known to do so. Programs that are linked with them statically do not show it.
var writers = []writer{
	{file: "libuct_ib_mlx5.so", why: "UCX writes the queues of rc_x, dc_x and ud_x itself (rc_v and ud_v are seen)"},
	{file: "libuct_ib.so", with: "libmlx5.so", why: "UCX writes the queues of rc_x, dc_x and ud_x itself (rc_v and ud_v are seen)"},
	{file: "nvshmem_transport_ibgda.so", why: "threads of the GPU write NVSHMEM's queues"},
	{file: "librte_net_mlx5.so", why: "DPDK writes its queues itself"},
	{file: "librte_common_mlx5.so", why: "DPDK writes its queues itself"},
	{file: "libspdk_mlx5.so", why: "SPDK writes the queues of its accelerator itself"},
}

// writerOf returns the library among the mappings of a process that writes queues itself, and its file.
func writerOf(regions []proc.Mapping) (w writer, file string, ok bool) {
	mapped := func(prefix string) int {
		return slices.IndexFunc(regions, func(r proc.Mapping) bool { return strings.HasPrefix(filepath.Base(r.Path), prefix) })
	}
	for _, w := range writers {
		if i := mapped(w.file); i >= 0 && mapped(w.with) >= 0 {
			return w, filepath.Base(regions[i].Path), true
		}
	}
	return writer{}, "", false
}

// A QP is a QP of a process, as the kernel lists it.
type QP struct {
	PID     int
	Number  uint32
	CanSend bool // it is in RTS
}

// stillShown ends the reports about what is not seen.
const stillShown = "; ib: and mlx5:cmd still show its control path"

// notesWriter notes whether a process maps a library that writes queues itself.
func (f *Finder) notesWriter(t *target) bool {
	w, file, ok := writerOf(t.regions)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.writes, t.pid)
	if ok && len(f.writes) < mostKnown {
		f.writes[t.pid] = fmt.Sprintf("%s: %s", file, w.why)
	}
	return ok
}

// nameWriters names the processes with an open device that may write its queues themselves, if they can send.
func (f *Finder) nameWriters() {
	f.mu.Lock()
	writes := maps.Clone(f.writes)
	f.mu.Unlock()
	if len(writes) == 0 {
		return
	}
	able := f.able()
	for pid := range writes {
		if able[pid] {
			f.nameWriter(pid)
		}
	}
}

// able returns the processes with a QP that can send.
func (f *Finder) able() map[int]bool {
	all := make(map[int]bool)
	if f.QPs == nil {
		return all
	}
	qps, err := f.QPs()
	if err != nil {
		f.report(fmt.Sprintf("verbs: which QPs can send from before is unknown: %v", err))
	}
	for _, qp := range qps {
		if qp.CanSend {
			all[qp.PID] = true
		}
	}
	return all
}

// nameWriter reports that a process may write queues itself.
func (f *Finder) nameWriter(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reportLocked(fmt.Sprintf("verbs: process %d (%s) maps %s, which verbs: does not see%s", pid, commOf(pid), f.writes[pid], stillShown))
}

func commOf(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(name))
}

// ready is the first QP of a process that could send, and whether the process was followed by then.
type ready struct {
	number   uint32
	at       time.Time
	followed bool
}

// Quiet is after how long a process that has posted nothing is named.
const Quiet = 10 * time.Second

// CanSend notes that a QP of a process goes to RTS, when the process was looked into. If it calls nothing for as long as [Quiet], it is named.
func (f *Finder) CanSend(pid int, number uint32) {
	f.later(subject{pid: pid, what: "sends", number: number}, 0, func(t *target) time.Duration {
		if f.canSend(t, number) {
			f.later(subject{pid: pid, what: "quiet"}, Quiet, func(t *target) time.Duration {
				f.posts(t)
				return 0
			})
		}
		return 0
	})
}

// canSend reports whether it must be asked later if the process posts.
func (f *Finder) canSend(t *target, number uint32) (check bool) {
	if t.mapped() != nil {
		return false
	}
	if f.notesWriter(t) {
		f.nameWriter(t.pid)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, before := f.ready[t.process]; before {
		return false
	}
	if len(f.ready) == mostKnown {
		clear(f.ready)
	}
	followed := slices.ContainsFunc(f.opens[t.process], Open.followed)
	f.ready[t.process] = ready{number, time.Now(), followed}
	return followed
}

// posts names a process that has called nothing since a QP could send, where what is attached would have shown it: programs that see what it
// sends, and also what it receives, or polls.
func (f *Finder) posts(t *target) {
	if f.Callers == nil {
		return
	}
	f.mu.Lock()
	first, ok := f.ready[t.process]
	seen := f.seen(t.pid)
	f.mu.Unlock()
	devices, err := t.open()
	if err != nil || len(devices) == 0 || !ok || !first.followed || !slices.Contains(seen, "post_send") || len(seen) == 1 {
		return
	}
	callers, err := f.Callers()
	switch {
	case err != nil:
		f.report(fmt.Sprintf("verbs: which processes post nothing is unknown: %v", err))
	case !callers[t.pid]:
		f.report(fmt.Sprintf("verbs: process %d (%s) called none of %s in the %d s since its QP %d could send: %s%s", t.pid, commOf(t.pid),
			strings.Join(seen, ", "), Quiet/time.Second, first.number, quiet, stillShown))
	}
}

// quiet is what a process may be that calls nothing.
const quiet = "it is only the target of RDMA, or waits, or writes the device's queues itself, which verbs: does not see"

// keepers are the calls whose programs keep who calls them.
var keepers = []string{"poll_cq", "post_recv", "post_send"}

// seen returns which of these calls of a process are followed.
func (f *Finder) seen(pid int) (calls []string) {
	for _, call := range keepers {
		if slices.ContainsFunc(f.followers, func(w *Follower) bool { return w.call == call && (w.among == nil || w.among(pid)) }) {
			calls = append(calls, call)
		}
	}
	return calls
}

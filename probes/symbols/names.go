package symbols

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Names are the names of functions for all programs of this process, which share what is read: there is one budget of memory and of time. Its methods
// may be called from several goroutines.
type Names struct {
	share float64
	// kernelBytes is what the functions of the kernel take.
	kernelBytes atomic.Int64

	mu        sync.Mutex
	kernel    *Kernel
	processes *Processes // nil while nobody uses it
	members   map[*Member]bool
	past      Usage // of earlier processes
}

// NewNames returns names that nobody uses yet. share is which part of the time of a CPU is spent on names of processes: 1, if somebody waits for
// them, up to all of it.
func NewNames(share float64) *Names { return &Names{share: share, members: map[*Member]bool{}} }

// Usage is what names take.
type Usage struct {
	// Bytes of memory, and the limit of them.
	Bytes, Limit int64
	// Seconds were spent in all, without the kernel's functions.
	Seconds float64
	// Left is how many files were left, because of what it would take to read all of them; Files describes the first of them.
	Left  uint64
	Files []string
}

// Usage returns what names take now.
func (n *Names) Usage() Usage {
	n.mu.Lock()
	u, p := n.past, n.processes
	n.mu.Unlock()
	u.Bytes, u.Limit = n.kernelBytes.Load(), maxLoaded+maxMappedBytes
	if p != nil {
		u.add(p)
		u.Bytes += p.bytes()
	}
	return u
}

// add adds the work of processes.
func (u *Usage) add(p *Processes) {
	u.Seconds += p.turns.seconds()
	p.unread.mu.Lock()
	defer p.unread.mu.Unlock()
	u.Left += p.unread.files
	u.Files = slices.Concat(u.Files, p.unread.lines)
	u.Files = u.Files[max(0, len(u.Files)-maxUnread):]
}

// Kernel returns the functions of the kernel.
func (n *Names) Kernel() (*Kernel, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kernel != nil {
		return n.kernel, nil
	}
	k, err := OpenKernel()
	if err != nil {
		return nil, err
	}
	k.taken = &n.kernelBytes
	k.taken.Store(k.bytes())
	n.kernel = k
	return k, nil
}

// Member is a user of the names of processes.
type Member struct {
	*Processes
	names *Names
	inUse func() (map[int]bool, error)
}

// Processes returns the names of processes. inUse returns the ended processes whose stacks may still be looked up. The caller closes the result.
func (n *Names) Processes(inUse func() (map[int]bool, error)) (m *Member, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.processes == nil {
		if n.processes, err = openProcesses(n.inUse, n.share, &n.kernelBytes); err != nil {
			n.processes = nil
			return nil, err
		}
	}
	m = &Member{n.processes, n, inUse}
	n.members[m] = true
	return m, nil
}

// inUse returns the processes that some member wants.
func (n *Names) inUse() (map[int]bool, error) {
	n.mu.Lock()
	members := slices.Collect(maps.Keys(n.members))
	n.mu.Unlock()
	all := map[int]bool{}
	for _, m := range members {
		used, err := m.inUse()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, used)
	}
	return all, nil
}

// Close ends the use. The last one ends the watching of processes.
func (m *Member) Close() error {
	if !m.names.leave(m) {
		return nil
	}
	return m.Processes.close()
}

// leave ends a use, and reports whether it was the last one.
func (n *Names) leave(m *Member) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.members[m] {
		return false
	}
	if delete(n.members, m); len(n.members) > 0 {
		return false
	}
	n.past.add(m.Processes)
	n.processes = nil
	return true
}

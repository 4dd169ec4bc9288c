//go:build linux

package probes

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

// callersMap is where programs of a data path keep who calls something (bpf/verbs_callers.h).
const callersMap = "verbs_callers"

// callers are these maps of all batches.
type callers struct {
	mu   sync.Mutex
	maps []*ebpf.Map
}

// add begins to read a map, nil for none, until the closer is closed.
func (c *callers) add(m *ebpf.Map) io.Closer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m != nil {
		c.maps = append(c.maps, m)
	}
	return &readCallers{c, m}
}

type readCallers struct {
	callers *callers
	m       *ebpf.Map
}

func (r *readCallers) Close() error {
	r.callers.mu.Lock()
	defer r.callers.mu.Unlock()
	r.callers.maps = slices.DeleteFunc(r.callers.maps, func(o *ebpf.Map) bool { return o == r.m })
	return nil
}

// read returns the processes that call something. Where a map is full nobody knows.
func (c *callers) read() (map[int]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[int]bool)
	for _, m := range c.maps {
		var caller uint32
		var yes uint8
		n := uint32(0)
		all := m.Iterate()
		for all.Next(&caller, &yes) {
			found[int(caller)] = true
			n++
		}
		if err := all.Err(); err != nil {
			return nil, err
		}
		if n >= m.MaxEntries() {
			return nil, errors.New("too many processes call the functions that are followed")
		}
	}
	return found, nil
}

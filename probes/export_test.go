package probes

import (
	"github.com/cilium/ebpf"
)

// LoadUnattached loads the programs for a request as Attach does, but attaches none: a test runs them. Their code refers to maps.
func LoadUnattached(h *Host, r Request, maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	rq := h.request(r)
	rq.hooks = h.hooksFor(rq)
	l, err := newLoader(h, []*request{rq}, maps)
	if err != nil {
		return nil, err
	}
	loaded := make(map[string]*ebpf.Program)
	for name := range l.spec.Programs {
		if l.idle[name] {
			continue
		}
		if loaded[name], err = l.unattached(name); err != nil {
			return nil, err
		}
	}
	return loaded, nil
}

package probes

import (
	"github.com/cilium/ebpf"
)

// Unattached are the programs for a request, which a test runs.
type Unattached struct {
	Programs map[string]*ebpf.Program // without those that have no effect
	request  *request
	loader   *loader
}

// LoadUnattached loads the programs for a request as Attach does, but attaches none. Their code refers to maps.
func LoadUnattached(h *Host, r Request, maps map[string]*ebpf.Map) (*Unattached, error) {
	u := &Unattached{Programs: make(map[string]*ebpf.Program), request: h.request(r)}
	u.request.hooks = h.hooksFor(u.request)
	var err error
	if u.loader, err = newLoader(h, []*request{u.request}, maps); err != nil {
		return nil, err
	}
	for name := range u.loader.spec.Programs {
		if u.loader.idle[name] {
			continue
		}
		if u.Programs[name], err = u.loader.unattached(name); err != nil {
			u.Close()
			return nil, err
		}
		for _, o := range u.loader.overflows(name) {
			u.request.overflows[o] = true
		}
	}
	return u, nil
}

// Overflowed returns how many beginnings a hash has kept so far.
func (u *Unattached) Overflowed() (uint64, error) { return u.request.overflowed() }

// Close unloads the programs.
func (u *Unattached) Close() {
	for _, p := range u.Programs {
		p.Close()
	}
	for _, m := range u.loader.maps {
		m.Close()
	}
}

package probes

// chosen are the processes in which a [datapath] is attached to. The others do not pay for it. The code of a request still decides about each
// event, so what is not known about a process chooses it.
type chosen struct{ conditions []func(pid int) bool }

func (*chosen) arg() {}

// has reports whether a process is one of them now.
func (c *chosen) has(pid int) bool {
	for _, holds := range c.conditions {
		if !holds(pid) {
			return false
		}
	}
	return true
}

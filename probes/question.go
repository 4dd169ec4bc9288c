//go:build linux

package probes

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"
)

// AnswersQuestions reports whether the kernel can have answers to questions about cgroups.
func (h *Host) AnswersQuestions() bool {
	_, err := h.catalog.cgroups.Hierarchy()
	return err == nil && h.kernel.Described() == nil
}

// answers are the set of all cgroups with the answers to a question.
type answers struct {
	*set
	// of answers the question for the cgroup with an id.
	of     func(id uint64) answer
	forget func()

	// mu guards the set while it is open.
	mu     sync.Mutex
	closed bool
}

// answer makes the set of a question, and keeps it right. It follows a new cgroup while the catalog's cgroups are watched.
func (h *Host) answer(question func(id uint64) (yes, known bool)) (*answers, error) {
	s, err := h.newCgroups()
	if err != nil {
		return nil, err
	}
	a := &answers{set: s, of: func(id uint64) (found answer) {
		if yes, known := question(id); known {
			found.Known = 1
			if yes {
				found.Yes = 1
			}
		}
		return found
	}}
	a.forget = h.catalog.cgroups.Follow(a.correct)
	err = s.members.Update(uint64(0), answer{}, ebpf.UpdateAny) // an event without a cgroup has the id 0
	if err == nil {
		err = s.addBelow(h, h.catalog.cgroups.Root(), a.of)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// correct answers the question for a cgroup that was made, or whose workload has got a name. If the set lacks it, it is gone, or addBelow
// adds it.
func (a *answers) correct(id uint64) {
	now := a.of(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		_ = a.members.Update(id, now, ebpf.UpdateExist)
	}
}

func (a *answers) close() error {
	a.forget()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.set.close()
}

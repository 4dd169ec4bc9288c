//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A process that can send is watched until it calls something: it is then not named, and nothing stays attached.
func TestUsers(t *testing.T) {
	memory := newContext(device(t), uint64(reflect.ValueOf(TestUsers).Pointer()))
	defer clear(memory)
	for _, test := range []struct {
		name         string
		canSend      bool
		qps, callers error
		refused      bool
		calls        int // how often it is asked who calls
		note         string
	}{
		{name: "calls", canSend: true, calls: 2},
		{name: "no QP in RTS"},
		{name: "no list", qps: errors.New("no netlink"), note: "which QPs there are is unknown: no netlink"},
		{name: "full", canSend: true, callers: errors.New("too many"), calls: 1, note: "which processes post nothing is unknown: too many"},
		{name: "refused", canSend: true, refused: true, note: "which processes post nothing is unknown: refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &attachments{open: make(map[string]int), fail: test.refused}
			calls, attached := 0, 0
			callers := func() (map[int]bool, error) {
				calls++
				attached = max(attached, a.number())
				return map[int]bool{os.Getpid(): calls == 2}, test.callers
			}
			qps := func() ([]QP, error) {
				return []QP{{PID: os.Getpid(), Number: 7, CanSend: test.canSend}, {PID: 1}}, test.qps
			}
			users, notes, err := newFinder(nil).users(t.Context(), qps, a.attach, callers)
			i := slices.IndexFunc(users, func(p Process) bool { return p.PID == os.Getpid() })
			if err != nil || i < 0 || len(users[i].Devices) != 1 || users[i].Unseen != nil {
				t.Fatalf("%+v, %v", users, err)
			}
			if got := fmt.Sprint(users[i].QPs, users[i].CanSend); test.qps == nil && got != fmt.Sprint(1, map[bool]int{true: 1}[test.canSend]) {
				t.Errorf("%s QPs", got)
			}
			if strings.Join(notes, "\n") != test.note || calls != test.calls || a.number() != 0 || (calls > 0) != (attached > 0) {
				t.Errorf("notes %q, want %q; it asked %d times, want %d; %d were attached, %d still are", notes, test.note, calls, test.calls, attached, a.number())
			}
		})
	}
}

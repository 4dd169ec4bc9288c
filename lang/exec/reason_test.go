package exec

import (
	"strings"
	"testing"

	"trace/lang/check"
	"trace/lang/langtest"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// planned compiles and plans a program.
func planned(t *testing.T, text string, o plan.Options) *plan.Plan {
	t.Helper()
	program, err := compile("program", text, langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.CPUs = 2
	p, err := plan.New(program, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// explained returns what Explain writes about a program.
func explained(t *testing.T, text string, o plan.Options) string {
	t.Helper()
	p := planned(t, text, o)
	var b strings.Builder
	if err := p.Explain(&b, func(probes.Request) (string, []probes.Kept) {
		return "by fentry", []probes.Kept{{By: "thread", Slots: 64, Hash: 16}}
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A replay runs in user space.
func TestRecordedReason(t *testing.T) {
	p := planned(t, "nvme:setup_rq { @ = count() }", plan.Options{Recorded: true})
	if why := p.Sites[0].InUser; why == nil || why.Reason != "the events are recorded" {
		t.Errorf("got %+v", why)
	}
}

// Explain gives the reason for each step and each map in user space.
func TestReasons(t *testing.T) {
	for text, want := range map[string]string{
		`nvme:setup_rq`:                                                                              "user space: it is output",
		`nvme:setup_rq { print(size) }`:                                                              "user space: it is output",
		`nvme:setup_rq { exit() }`:                                                                   "kernel: ignores later events; user space: ends the program",
		`nvme:setup_rq { if (size > 1) { print(pid) } }`:                                             "user space: it is output",
		`nvme:setup_rq / ctrl startsWith comm /`:                                                     "startsWith with a string that is not a literal is not supported in the kernel",
		`nvme:setup_rq / ctrl matches "^a" /`:                                                        "matches is not supported in the kernel",
		`nvme:setup_rq / upper(ctrl) == "A" /`:                                                       "upper() is not supported in the kernel",
		`nvme:setup_rq / cgroup startsWith "/a" /`:                                                   "the path of a cgroup is not supported in the kernel",
		`nvme:setup_rq / (size + 1, pid) in [(1, 2)] /`:                                              "in of tuples is not supported in the kernel",
		`begin { @a = (1, 2) } nvme:setup_rq { $t = @a; @[$t.0] = 1 }`:                               "a variable that takes a whole tuple from a map is not supported in the kernel",
		`begin { @a = (1, 2) } nvme:setup_rq { $t = (1, 2); $t = @a; $u = $t; @[$u.0] = 1 }`:         "a variable that takes a whole tuple from a map is not supported in the kernel",
		`begin { @a = (1, 2) } nvme:setup_rq { @b = @a == @a }`:                                      "a tuple as a value of an expression is not supported in the kernel",
		`begin { @a = (1, 2) } nvme:setup_rq { @b = (size, pid) == @a }`:                             "a tuple as a value of an expression is not supported in the kernel",
		`nvme:setup_rq / upper(ctrl) == "A" / { exit() } nvme:setup_rq { @ = count() }`:              "exit() of clause 1 runs in user space, and nothing may be counted after it",
		`nvme:setup_rq / upper(ctrl) == "A" / { @ = count() } nvme:setup_rq { @ = count() }`:         "clause 1 runs in user space",
		`let @ = lru(10); nvme:setup_rq { @[pid] = count() } interval:1s { clear(@) }`:               "it drops its oldest keys, so what was added since it was emptied is unknown",
		`nvme:setup_rq { @[pid] = count(); delete(@[pid]) } interval:1s { clear(@) }`:                "events delete its keys while something empties it",
		`nvme:setup_rq { @[pid] = count(); if (has_key(@, 1)) { @b = 1 } } interval:1s { clear(@) }`: "events look up its keys while something empties it",
		`nvme:setup_rq { @[pid]++; @[tid] = 7 } interval:1s { print(@); clear(@) }`:                  "an interval clause reads and empties it, and updates in between would be lost",
		`begin { @ = 1 }`: "no clause on events uses it",
		`nvme:setup_rq { @ = count() } interval:1s { @ = count() }`:     "a clause without events aggregates in it",
		`nvme:setup_rq { @++ } interval:1s { @++ }`:                     "an interval clause changes it, which is not atomic in the kernel",
		`nvme:setup_rq { @ = count(); @b = @ }`:                         "@ is read at an event, but in the kernel each CPU has its own values",
		`nvme:setup_rq { @[pid] = 1; @b = len(@) }`:                     "len(@) at an event counts its keys",
		`nvme:setup_rq { @[pid] = 1; clear(@) }`:                        "clear(@) at an event needs the map as it is then",
		`nvme:setup_rq { @[pid] = 1; @[uid] = @[pid] + 1 }`:             "a clause reads and sets it, which is not atomic in the kernel",
		`nvme:setup_rq { @[pid] = 1; clear(@) } nvme:setup_rq / @[1] /`: "@ is in user space: clear(@) at an event needs the map as it is then",
		`param n = 1; nvme:setup_rq / $n == 2 /`:                        "nowhere: its predicate is always false",
		`nvme:setup_rq { @[kstack(5)] = count() }`:                      "up to 5 frames",
		`nvme:setup_rq { @[size] = count() }`:                           "in a table of 64 slots, which costs less than a hash; what finds no room, in a hash of 16 keys",
	} {
		if got := explained(t, text, plan.Options{}); !strings.Contains(got, want) {
			t.Errorf("%s\ngot\n%s\nwant %q", text, got, want)
		}
	}
	rejected := map[*event.Probe]bool{langtest.Fixture("nvme:setup_rq"): true}
	for want, o := range map[string]plan.Options{
		"user space: --no-kernel":                            {NoKernel: true},
		"user space: the kernel rejected the generated code": {Rejected: rejected},
	} {
		if got := explained(t, "nvme:setup_rq { @ = count() }", o); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
}

// Tuples in variables are kept in the kernel, whatever the program does with them.
func TestTuplesInKernel(t *testing.T) {
	for _, text := range []string{
		`nvme:setup_rq { $t = (size, pid); @[$t.0] = 1 }`,
		`nvme:setup_rq { $t = (size, pid); $t = ($t.1, $t.0); @[$t] = count() }`,
		`nvme:setup_rq { $t = (a=size, b=(ctrl, pid)); $u = $t; @[$u.b] = $t.a }`,
		`nvme:setup_rq / (size, pid) in [(1, 2), (3, 4)] / { @ = count() }`,
		`nvme:setup_rq { $t = (size, pid); if ($t == (1, 2) || $t != (3, 4)) { print($t) } }`,
	} {
		p := planned(t, text, plan.Options{})
		if why := p.Sites[0].InUser; why != nil {
			t.Errorf("%s: %s", text, why.Reason)
		}
	}
	text := `nvme:setup_rq { $t = (size, pid); @[$t] = count() }`
	if got := explained(t, text, plan.Options{}); strings.Count(got, "$t = (size, pid)") != 2 { // in the clause, and as a step
		t.Errorf("it is explained by\n%s", got)
	}
}

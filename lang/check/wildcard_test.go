package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/probes/event"
)

// probesOf writes the probes that the clauses of a program use and, after a minus, the ones that they drop.
func probesOf(p *ir.Program) string {
	var all []string
	for _, c := range p.Clauses {
		var words []string
		for _, probe := range c.Probes {
			words = append(words, probe.String())
		}
		for _, l := range c.LeftOut {
			words = append(words, fmt.Sprintf("-%s (%s)", l.Probe, l.Why))
		}
		all = append(all, strings.Join(words, " "))
	}
	return strings.Join(all, "; ")
}

// A wildcard stands for the probes that have what the clause reads.
func TestWildcards(t *testing.T) {
	hz := langtest.Probe("profile", "hz", langtest.Field("task", langtest.U32))
	host := append(slices.Clone(langtest.Catalog), hz)
	for _, test := range []struct{ src, want string }{
		{"nvme:* / latency > 1ms /", "nvme:complete_rq -nvme:setup_rq (no field latency)"},
		{"ib:* / qp.state == RTR && dgid != nil /", "ib:modify_qp -ib:destroy_qp (no field qp.state, dgid)"},
		{"nvme:* { @[ctrl] = sum(flags) }", "nvme:setup_rq -nvme:complete_rq (no field flags)"},
		{"nvme:*, nvme:setup_rq / size > 1 /", "nvme:complete_rq nvme:setup_rq"},
		{"nvme:*, ib:* / size > 1 || ret < 0 /; nvme:*", ""},
		{"nvme:* / $on && latency > 1 / ; param on = false", " -nvme:setup_rq (no field latency)"},
		// The meaning of a word may come from another clause.
		{"nvme:setup_rq { @last[tid] = opcode } nvme:* / @last[tid] == read && latency > 1 /",
			"nvme:setup_rq; nvme:complete_rq -nvme:setup_rq (no field latency)"},
		{"*:* / opcode == read /", "nvme:complete_rq nvme:setup_rq " + lacking("opcode", "nvme") + " -profile:hz (it needs a rate, like profile:99hz)"},
		{"*:* / task > 5 /", ""},
		{"pro*:hz", ""},
	} {
		p, err := compile("program", test.src, host, Options{})
		if err != nil {
			if test.want != "" {
				t.Errorf("%s:\n%v", test.src, err)
			}
			continue
		}
		got, want := strings.Fields(probesOf(p)), strings.Fields(test.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", test.src, probesOf(p), test.want)
		}
	}
	// A recording's samples already have a rate.
	p, err := compile("program", "*:* / task > 5 /", host, Options{Known: func() []*event.Probe { return host }})
	if err != nil || !strings.HasPrefix(probesOf(p), "profile:hz ") {
		t.Errorf("of a recording: %v", err)
	}
}

// lacking writes the probes of the catalog outside the groups that lack the field.
func lacking(name string, groups ...string) string {
	var words []string
	for _, p := range langtest.Catalog {
		if !slices.Contains(groups, p.Group) {
			words = append(words, fmt.Sprintf("-%s (no field %s)", p, name))
		}
	}
	return strings.Join(words, " ")
}

// A probe that the recording lacks is reported differently from a name that no probe has.
func TestRecordedProbes(t *testing.T) {
	hz := langtest.Probe("profile", "hz")
	known := append(slices.Clone(langtest.Catalog), hz)
	nvme := []*event.Probe{langtest.Fixture("nvme:complete_rq")}
	for _, test := range []struct {
		src   string
		has   []*event.Probe
		rates []int
		want  string
	}{
		{"nvme:complete_rq", nvme, nil, "<nil>"},
		{"nvme:*, ib:* / latency > 1 /", nvme, nil, "<nil>"},
		{"nvme:setup_rq", nvme, nil, "program:1:1: the recording has no events of nvme:setup_rq; help: it has events of nvme:complete_rq"},
		{"ib:*", nvme, nil, "program:1:1: the recording has no events of ib:*; help: it has events of nvme:complete_rq"},
		{"config = { missing_probes = warn } nvme:setup_rq {} nvme:complete_rq {}", nvme, nil, "<nil>; program:1:36: WARNING: the recording has no events of nvme:setup_rq"},
		{"config = { missing_probes = ignore } interval:1s {} nvme:setup_rq {}", nvme, nil, "program:1:53: the recording has no events of any probe of this program; help: it has events of nvme:complete_rq"},
		{"config = { missing_probes = ignore } nvme:setup_rq, nvme:complete_rq {}", nvme, nil, "<nil>"},
		{"config = { missing_probes = warn } nvme:setup_r {}", nvme, nil, "program:1:36: there is no probe nvme:setup_r; help: nvme has nvme:complete_rq"},
		{"nvme:complet_rq", nvme, nil, `program:1:1: there is no probe nvme:complet_rq; help: did you mean "nvme:complete_rq"?`},
		{"profile:99hz", nvme, nil, "program:1:1: the recording has no events of profile:99hz; help: it has events of nvme:complete_rq"},
		{"profile:*", []*event.Probe{hz}, []int{99}, "<nil>"},
		{"profile:hz", []*event.Probe{hz}, []int{99, 49}, "<nil>"},
		{"p:hz:99", []*event.Probe{hz}, []int{99}, "<nil>"},
		{"profile:49hz", []*event.Probe{hz}, nil, "<nil>"},
		{"param r = 49; profile:$r {}", []*event.Probe{hz}, []int{99}, "<nil>"},
		{"profile:49hz", []*event.Probe{hz}, []int{99},
			"program:1:1: the samples were recorded at 99hz, not at 49hz; help: write profile:* to use them as they are"},
		{"param r = 49; profile:$r {}", []*event.Probe{hz}, []int{99, 49},
			"program:1:15: the samples were recorded at 99hz and 49hz, not at 49hz; help: write profile:* to use them as they are"},
	} {
		p, err := compile("program", test.src, test.has, Options{Known: func() []*event.Probe { return known }, Rates: test.rates})
		got := fmt.Sprint(err)
		if err == nil && p.Warnings != nil {
			warning, _, _ := strings.Cut(p.Warnings.Error(), "\n")
			got += "; " + warning
		}
		if lines := strings.Split(got, "\n"); len(lines) > 1 {
			got = lines[0] + "; " + lines[len(lines)-1]
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.src, got, test.want)
		}
	}
}

// What was not traced when a recording was made is left out with its reason. Named alone, it is a mistake.
func TestUntraced(t *testing.T) {
	complete, setup := langtest.Fixture("nvme:complete_rq"), langtest.Fixture("nvme:setup_rq")
	options := Options{Known: func() []*event.Probe { return []*event.Probe{complete, setup} }, Untraced: map[string]string{"nvme:setup_rq": "the kernel refuses it"}}
	for src, want := range map[string]string{
		"nvme:*": "nvme:complete_rq [nvme:setup_rq: not recorded: the kernel refuses it]",
		"config = { missing_probes = warn } nvme:setup_rq, nvme:complete_rq {}": "nvme:complete_rq nvme:setup_rq [nvme:setup_rq: not recorded: the kernel refuses it]",
		"nvme:complete_rq": "nvme:complete_rq []",
		"nvme:setup_rq":    "program:1:1: the recording has no events of nvme:setup_rq, which was not recorded: the kernel refuses it",
	} {
		p, err := compile("program", src, []*event.Probe{complete}, options)
		got, _, _ := strings.Cut(fmt.Sprint(err), "\n")
		if err == nil {
			var left []string
			for _, l := range p.Clauses[0].LeftOut {
				left = append(left, l.Probe.String()+": "+l.Why)
			}
			got = fmt.Sprintf("%s %s", strings.Trim(fmt.Sprint(p.Clauses[0].Probes), "[]"), left)
			if p.Warnings != nil {
				got += "; " + p.Warnings.Error()
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
}

// A rate may be a param, with or without a unit before it.
func TestProfileParam(t *testing.T) {
	host := []*event.Probe{langtest.Probe("profile", "hz")}
	for _, src := range []string{"param hz = 49; profile:$hz { @ = count() }", "param hz = 49; p:hz:$hz { @ = count() }", "p:49hz { @ = count() }"} {
		p, err := compile("program", src, host, Options{})
		if err != nil {
			t.Errorf("%s: %v", src, err)
		} else if p.SampleRate() != 49 {
			t.Errorf("%s: %d samples a second", src, p.SampleRate())
		}
	}
}

// What reads this machine has no place in the program of a recording.
func TestFunctionsOfThisMachine(t *testing.T) {
	recorded := Options{Known: func() []*event.Probe { return langtest.Catalog }, Unsafe: true}
	for src, want := range map[string]string{
		`begin { system("true") }`:          "program:1:9: system() acts on this machine, and a recording is of the past; help: leave it out",
		"begin { print(ksym(1)) }":          "program:1:15: ksym() reads the functions of the running kernel, and a recording may be of another one; help: print kstack, which is recorded with its names",
		"nvme:setup_rq { print(usym(1)) }":  "program:1:23: usym() reads the process of the event, which a recording has not; help: print ustack, which is recorded with its names",
		"begin { print(nsecs(tai)) }":       "program:1:15: a recording has only the clock of nsecs, the time since boot; help: write nsecs, or strftime() for the time of day",
		"begin { print(comm(1)) }":          "program:1:15: comm(pid) reads the name of a process of this machine, and a recording is of the past; help: write comm, the name at the event",
		"begin { print(str()) }":            "program:1:15: str() has no argument here; help: write str(s) or str(s, n)",
		"begin { static_assert(1 == 1, 2)}": `program:1:31: the message of static_assert() must be a literal string; help: write static_assert(condition, "message")`,
	} {
		_, err := compile("program", src, langtest.Catalog, recorded)
		lines := strings.Split(fmt.Sprint(err), "\n")
		got := lines[0]
		if last := lines[len(lines)-1]; strings.HasPrefix(last, "help: ") {
			got += "; " + last
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
	_, err := compile("program", "begin { print(syscall_name(1)) }", []*event.Probe{langtest.Fixture("nvme:complete_rq")}, Options{})
	if want := "program:1:15: no probe here has the names of system calls"; !strings.HasPrefix(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A value that is kept has the type that it has for its probe, whatever others of the clause have.
func TestKeptValuesOfProbes(t *testing.T) {
	unsigned := langtest.Probe("made", "unsigned", langtest.Field("x", langtest.U32))
	signed := langtest.Probe("made", "signed", langtest.Field("x", langtest.S8))
	p, err := compile("program", "made:* { @a = 7 % (x ?? ({ let $y = 1; $y })) }", []*event.Probe{signed, unsigned}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for probe, want := range map[*event.Probe]event.Kind{unsigned: event.Uint, signed: event.Int} {
		var got []event.Kind
		p.Clauses[0].Sites[probe].WalkExprs(func(e *ir.Expr) {
			if e.Op == ir.OpCoalesce {
				got = append(got, e.Type.Kind)
			}
		})
		if !slices.Equal(got, []event.Kind{want}) {
			t.Errorf("%s: the choice is of kind %v, want %v", probe, got, want)
		}
	}
}

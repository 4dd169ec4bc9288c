package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/probes/event"
)

// A probe of readings may have a period in the program, which a recording keeps.
func TestPeriods(t *testing.T) {
	counters := langtest.Probe("net", "counters", langtest.Field("value", langtest.U64))
	counters.Period, counters.LeastPeriod = time.Second, 10*time.Millisecond
	host := append(slices.Clone(langtest.Catalog), counters)
	recorded := Options{Known: func() []*event.Probe { return host }, Periods: map[string][]time.Duration{"net:counters": {time.Second}}}
	chosen := recorded
	chosen.Params = map[string]string{"p": "3"}
	for _, test := range []struct {
		src  string
		o    Options
		want string
	}{
		{"net:counters", Options{}, "net:counters prints 1s"},
		{"net:counters:100ms", Options{}, "net:counters:100ms prints 100ms"},
		{"net:*:100ms / value > 5 /", Options{}, "net:counters:100ms / >(value:u8, 5):bool / prints 100ms"},
		{"param p = 10ms; net:counters:$p {}", Options{}, "net:counters:10ms 10ms"},
		{"net:counters:10hz, ib:destroy_qp {}", Options{}, "net:counters:100ms; ib:destroy_qp 100ms"},
		{"net:counters:9ms", Options{}, "program:1:1: a period of 9ms is too short for net:counters; help: write net:counters:10ms, or a longer one"},
		{"net:counters:fast", Options{},
			"program:1:1: a probe has two parts; help: write group:name, as trace -l lists them; a probe that reads counters may have a period, like net:counters:100ms"},
		{"ib:destroy_qp:1s", Options{}, "program:1:1: ib:destroy_qp has no period; help: write ib:destroy_qp"},
		{"net:count:1s", Options{}, `program:1:1: there is no probe net:count; help: did you mean "net:counters"?`},
		{"net:counters:$p", Options{}, "program:1:1: there is no param p; help: declare it: param p = 1s"},
		{"param p = 5; net:counters:$p {}", Options{}, "program:1:14: $p is not a duration; help: give the param a duration, like 1s"},
		{"net:counters:1s { print(kstack) }", Options{}, "program:1:25: net:counters has no task, so there is no kstack; help: capture stacks at other probes"},
		{`net:counters { signal("KILL") }`, Options{Unsafe: true},
			"program:1:16: no task makes net:counters, so there is no process to send a signal to; help: send it at other probes"},
		{"net:counters", recorded, "net:counters prints 1s"},
		{"net:counters:1s", recorded, "net:counters:1s prints 1s"},
		{"net:counters:2s", recorded, "program:1:1: net:counters was recorded with a period of 1s, not of 2s; help: write net:counters to use it as it is"},
		{"param p = 2s; net:counters:$p / value > $p / {}", recorded, "net:counters:1s / >(value:u8, 1000000000):bool / 1s"},
		{"param p = 2s; net:counters:$p {}", chosen, "program:1:15: net:counters was recorded with a period of 1s, not of 3s; help: leave out --p to use them as they are"},
	} {
		p, err := compile("program", test.src, host, test.o)
		got := fmt.Sprint(err)
		if lines := strings.Split(got, "\n"); len(lines) > 1 {
			got = lines[0] + "; " + lines[len(lines)-1]
		}
		if err == nil {
			got = strings.ReplaceAll(p.Dump(), "\n", "; ") + " " + ir.PeriodText(p.Periods()["net:counters"])
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.src, got, test.want)
		}
	}
	// A wildcard leaves it out where a stack is wanted.
	p, err := compile("program", "*:* { @[kstack] = count() }", host, Options{})
	if err != nil || probesOf(p) != strings.Join(namesOf(langtest.Catalog), " ")+" -net:counters (no field kstack)" {
		t.Errorf("%v: %s", err, probesOf(p))
	}
	for src, ok := range map[string]bool{
		"net:counters / value > 5 / {} net:counters:1s {}": true,
		"net:counters / value > 5 / {} net:counters:2s {}": false,
		"net:counters:2s {} ib:destroy_qp {} net:*:2s { }": true,
	} {
		p, err := compile("program", src, host, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Recordable(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "a recording cannot keep readings of two periods apart") {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func namesOf(all []*event.Probe) (names []string) {
	for _, p := range all {
		names = append(names, p.String())
	}
	return names
}

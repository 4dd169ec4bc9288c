package exec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trace/lang/check"
	"trace/lang/langtest"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// withDense is the catalog with a dense probe beside another one of its group.
func withDense() []*event.Probe {
	poll := langtest.Probe("verbs", "poll", langtest.Field("entries", langtest.U32))
	poll.Dense, poll.Apart = "verbs:poll_cq", true
	return append(slices.Clone(langtest.Catalog), poll, langtest.Probe("verbs", "poll_cq", langtest.Field("entries", langtest.U32)))
}

func planDense(t *testing.T, text string, o plan.Options) (*plan.Plan, error) {
	t.Helper()
	program, err := compile("program", text, withDense(), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.CPUs = 2
	return plan.New(program, o)
}

// The events of a dense probe stay in the kernel: what would send them to user space is refused, with the reason.
func TestDenseRefused(t *testing.T) {
	catalog := withDense()
	rejected := map[*event.Probe]bool{catalog[len(catalog)-2]: true}
	for _, test := range []struct {
		text, why string
		options   plan.Options
	}{
		{text: "verbs:poll", why: "they are printed there"},
		{text: "verbs:pol?", why: "they are printed there"},
		{text: `verbs:poll { print(entries) }`, why: "print(entries) runs there"},
		{text: `verbs:poll { @ = count(); if (entries > 1) { exit() } }`, why: "exit() runs there"},
		{text: `verbs:poll / comm matches "a" /`, why: `comm matches "a" runs there: matches is not supported in the kernel`},
		{text: `verbs:poll / comm matches "a" / { @ = count() }`, why: "clause 1 runs there: matches is not supported in the kernel"},
		{text: `verbs:poll { @ = count() } nvme:setup_rq { @ = count(); clear(@) }`, why: "clause 1 runs there: @ is in user space: clear(@) at an event needs the map as it is then"},
		{text: `verbs:poll { @ = count() }`, why: "clause 1 runs there: --no-kernel", options: plan.Options{NoKernel: true}},
		{text: `verbs:poll { @ = count() }`, why: "--compare needs them there", options: plan.Options{Compare: true}},
		{text: `verbs:poll { @ = count() }`, why: "they would be recorded", options: plan.Options{Record: true}},
		{text: `nvme:setup_rq / upper(ctrl) == "A" / { exit() } verbs:poll { @ = count() }`, why: "clause 2 runs there: exit() of clause 1 runs in user space"},
	} {
		_, err := planDense(t, test.text, test.options)
		want := "verbs:poll has too many events to send them to user space, and " + test.why
		const help = "help: use verbs:poll_cq, or count in the kernel: verbs:poll { @[comm] = count() }"
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), help) {
			t.Errorf("%s\n%v\nwant %q", test.text, err, want)
		}
	}
	program, err := compile("program", "verbs:poll { @ = count() }", catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.New(program, plan.Options{CPUs: 2, Rejected: rejected}); err == nil || !strings.Contains(err.Error(), "clause 1 runs there: the kernel rejected the generated code") {
		t.Errorf("%v after the kernel rejected the code", err)
	}
}

// A wildcard leaves a dense probe out where it must.
func TestDenseLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		"verbs:*": "[verbs:poll_cq]",
		`verbs:* / comm matches "a" / { @ = count() }`:                          "[verbs:poll_cq]",
		"verbs:* { @[probe] = count() }":                                        "[verbs:poll verbs:poll_cq]",
		"verbs:poll { @ = count(); @m[comm] = max(entries); delete(@m[comm]) }": "[verbs:poll]",
	} {
		p, err := planDense(t, text, plan.Options{})
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		var attached []string
		for _, r := range p.Requests() {
			attached = append(attached, r.Probe.String())
		}
		if got := fmt.Sprint(attached); got != want {
			t.Errorf("%s attaches %s, want %s", text, got, want)
		}
		var b strings.Builder
		if err := p.Explain(&b, func(probes.Request) (string, []probes.Kept) { return "by uprobe", nil }); err != nil {
			t.Fatal(err)
		}
		const left = "verbs:poll is left out: it has too many events to send them to user space, and "
		if strings.Contains(b.String(), left) == slices.Contains(attached, "verbs:poll") {
			t.Errorf("%s is explained by\n%s", text, b.String())
		}
	}
}

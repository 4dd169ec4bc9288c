package lang

import (
	"strings"
	"testing"

	"trace/lang/check"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// TestScriptsCompile plans each script with its defaults, and with each of its flags that is on or off.
func TestScriptsCompile(t *testing.T) {
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts.All() {
		params, err := Params(s.Name, s.Text)
		if err != nil {
			t.Fatal(err)
		}
		sets := []map[string]string{nil}
		for _, p := range params {
			if p.Help == "" {
				t.Errorf("%s: param %s has no help", s.Name, p.Name)
			}
			if p.Type.Kind == event.Bool {
				sets = append(sets, map[string]string{p.Name: "true"})
			}
		}
		for _, set := range sets {
			program, err := Compile(s.Name, s.Text, catalog.Probes(), check.Options{Params: set})
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			if _, err := Prepare(program, plan.Options{CPUs: 2, StackLeft: catalog.StackLeft}); err != nil {
				t.Errorf("%s with %v: %v", s.Name, set, err)
			}
		}
	}
}

// A pattern for probes that a recording lacks is left out of a clause that has others; a mistake is none, and a full name asks for the probe.
func TestPatternsOfRecordings(t *testing.T) {
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	var recorded []*event.Probe
	for _, p := range catalog.Probes() {
		if p.Group == "ib" {
			recorded = append(recorded, p)
		}
	}
	for text, want := range map[string]string{
		"ib:*_qp, mlx5:* { @ = count() }":    "",
		"mlx5:*_qp, ib:*_qp { @ = count() }": "",
		"mlx5:* { @ = count() }":             "the recording has no events of mlx5:*",
		"ib:*_qp, mlx5:cmd { @ = count() }":  "the recording has no events of mlx5:cmd",
		"ib:*_qp, mlx6:* { @ = count() }":    "no probe is called mlx6:*",
	} {
		_, err := Compile("p", text, recorded, check.Options{Known: catalog.Probes})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if _, err := Compile("p", text, recorded, check.Options{}); err == nil {
			t.Errorf("%s: a host has all probes that trace knows", text)
		}
	}
}

// A program means the same for the groups that it names as for the whole catalog.
func TestGroupsSuffice(t *testing.T) {
	all, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts.All() {
		groups := Groups(s.Text)
		some, err := probes.Load(groups...)
		if err != nil {
			t.Fatal(err)
		}
		if len(groups) == 0 || len(some.Probes()) >= len(all.Probes()) {
			t.Errorf("%s: groups %q give %d probes", s.Name, groups, len(some.Probes()))
		}
		var dumps []string
		for _, c := range []*probes.Catalog{all, some} {
			program, err := Compile(s.Name, s.Text, c.Probes(), check.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dumps = append(dumps, program.Dump())
		}
		if dumps[0] != dumps[1] {
			t.Errorf("%s: of the whole catalog\n%s\nof %q\n%s", s.Name, dumps[0], groups, dumps[1])
		}
	}
}

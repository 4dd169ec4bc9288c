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

// TestScriptsCompile plans each script with its defaults, and with each of its boolean flags on and off.
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

// A pattern is dropped from a clause if the recording lacks its probes and the clause has others. A misspelt pattern is an error,
// and so is a full name that the recording lacks.
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
		"ib:*_qp, mlx6:* { @ = count() }":    "there is no probe mlx6:*",
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

// A program means the same with only the groups that it names as with the whole catalog.
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

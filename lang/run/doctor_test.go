//go:build linux

package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"trace/probes/recording"
)

// A group whose modules are missing is one row. A group with an available probe, or whose probes lack different things, is not.
func TestDiagnosisFoldsGroups(t *testing.T) {
	works := []variantDiagnosis{{Name: "raw_tp", Capabilities: []string{"CAP_BPF"}}}
	no := func(name, reason string) probeDiagnosis { return probeDiagnosis{Name: name, Reason: reason} }
	d := Diagnosis{Probes: []probeDiagnosis{
		no("cm:a", "no module"), no("cm:b", "no module"),
		no("mlx5:a", "no module"), no("mlx5:cmd", "no other module; no module"), no("mlx5:z", "no module"),
		no("nvme:a", "no function"), {Name: "nvme:b", Available: true, Variant: "raw_tp", Variants: works},
		no("odd:a", "one"), no("odd:b", "two"), no("odd:c", "three"),
		no("rdma:resource", "no module"),
	}}
	var out strings.Builder
	if err := d.Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `PROBE          AVAILABLE  VARIANT  NEEDS    REMARK
cm:*           no         -        -        no module
mlx5:*         no         -        -        no module; no other module
nvme:a         no         -        -        no function
nvme:b         yes        raw_tp   CAP_BPF
odd:a          no         -        -        one
odd:b          no         -        -        two
odd:c          no         -        -        three
rdma:resource  no         -        -        no module
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// A question about probes, a program or a script is answered for these alone, and fails if they cannot be used here.
func TestExamine(t *testing.T) {
	about := func(q Question) (d Diagnosis, text string) {
		t.Helper()
		found, err := Examine(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := found.Print(&out); err != nil {
			t.Fatal(err)
		}
		return found.(Diagnosis), out.String()
	}
	is := func(d Diagnosis, name string) (available bool) {
		t.Helper()
		i := slices.IndexFunc(d.Probes, func(p probeDiagnosis) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("%s is not among %v", name, d.Probes)
		}
		return d.Probes[i].Available
	}
	all, text := about(Question{})
	if len(all.Host) == 0 || len(all.Probes) < 50 || all.Failed() != nil || !strings.HasPrefix(text, "kernel ") {
		t.Errorf("about nothing: %d facts, %d probes, %v", len(all.Host), len(all.Probes), all.Failed())
	}
	some, text := about(Question{About: "syscall:*"})
	if len(some.Host) != 0 || len(some.Probes) != 2 || is(some, "syscall:exit") != is(all, "syscall:exit") || !strings.HasPrefix(text, "PROBE ") {
		t.Errorf("about syscall:*: %s", text)
	}
	for program, probe := range map[string]string{"syscall:exit { @ = count() }": "syscall:exit", "mlx5:cmd { @ = count() }": "mlx5:cmd", "hung": "sched:hung"} {
		d, text := about(Question{About: program})
		works := is(all, probe)
		name := "program"
		if program == "hung" {
			name = program
		}
		if d.Program == nil || d.Program.Runs != works || (d.Failed() == nil) != works || strings.Contains(text, "\n"+name+" runs here\n") != works {
			t.Errorf("about %s: %+v, %v, %s", program, d.Program, d.Failed(), text)
		}
		if !works && !strings.HasPrefix(d.Failed().Error(), name+" does not run here: ") {
			t.Errorf("about %s: %v", program, d.Failed())
		}
	}
	const acts = "it acts on this machine: run it with --unsafe"
	for program, want := range map[string]bool{`begin { system("true"); exit() }`: true, "begin { exit() }": false} {
		if d, text := about(Question{About: program}); !d.Program.Runs || strings.Contains(text, acts) != want {
			t.Errorf("about %s: %s", program, text)
		}
	}
	if quick, text := about(Question{About: "syscall:exit { @ = count() }", Quick: true}); !quick.Quick ||
		!strings.Contains(text, "\nNothing was attached (--quick): the kernel may still refuse what is available here.\n") {
		t.Errorf("quick: %s", text)
	}
	if _, err := Examine(t.Context(), Question{About: "./absent.trace"}); !errors.Is(err, ErrNoScript) {
		t.Errorf("about a file that is not there: %v", err)
	}
	if d := (Diagnosis{asked: "vm:rss", Probes: []probeDiagnosis{{Name: "vm:rss"}}}); d.Failed().Error() != "vm:rss: no such probe is available here" {
		t.Error(d.Failed())
	}
	v := Verdict{Name: "x", Runs: true}
	v.note(Attached{LeftOut: []recording.LeftOut{{Probes: []string{"a:b"}, Why: "no module"}}, Missing: []string{"a:c: objects from before are not counted"}})
	var out strings.Builder
	v.print(&out)
	if want := "\nx runs here\nwithout a:b: no module\na:c: objects from before are not counted\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

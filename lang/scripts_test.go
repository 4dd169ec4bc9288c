package lang

import (
	stdflag "flag" // flag is a type of the fixture
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trace/lang/syntax"
	"trace/probes"
	"trace/scripts"
)

// The scripts that come with trace, on events written by hand: scripts/testdata has a file for each. What a script prints is the
// example in its help, and scripts/README.md is made of that.
//
//	go test ./lang -run TestScript -scripts.update     # writes both anew
var scriptsUpdate = stdflag.Bool("scripts.update", false, "write the examples in scripts anew")

const scriptsFolder = "../scripts"

// TestScriptExamples runs each script and compares what it prints with its help.
func TestScriptExamples(t *testing.T) {
	catalog := realCatalog(t)
	for _, s := range scripts.All() {
		t.Run(s.Name, func(t *testing.T) {
			if !strings.HasPrefix(s.Text, fmt.Sprintf("# %s: %s\n#\n", s.Name, s.Summary)) || s.Summary == "" {
				t.Fatalf("the script does not begin with a line like # %s: what it is for", s.Name)
			}
			text := readText(t, filepath.Join(scriptsFolder, "testdata", s.Name+".events"))
			command, events, _ := strings.Cut(text, "\n")
			example := "# " + command + "\n"
			for line := range strings.Lines(runScript(t, s, catalog, command, events)) {
				example += strings.TrimRight("# "+strings.TrimRight(line, "\n"), " ") + "\n"
			}
			// The example is the last of the header.
			header, program, _ := strings.Cut(s.Text, "\n\n")
			before, shown, _ := strings.Cut(header+"\n", "# $ ")
			if shown = "# $ " + shown; shown == example {
				return
			}
			t.Errorf("it prints\n%s\nits help shows\n%s", example, shown)
			if *scriptsUpdate {
				writeText(t, filepath.Join(scriptsFolder, s.Name+".trace"), before+example+"\n"+program)
			}
		})
	}
}

// TestScriptManual compares scripts/README.md with the helps of the scripts.
func TestScriptManual(t *testing.T) {
	want := "# Scripts\n\nThese programs come with `trace`, and are called by their names. `trace NAME --help` shows this text and the flags, and\n" +
		"`trace scripts show NAME` the source, which is short: copy it, and change what you need.\n"
	for _, s := range scripts.All() {
		header, _, _ := strings.Cut(s.Text, "\n\n")
		want += fmt.Sprintf("\n## %s\n\n```console\n", s.Name)
		for line := range strings.Lines(header + "\n") {
			want += strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ")
		}
		want += "```\n"
	}
	file := filepath.Join(scriptsFolder, "README.md")
	if *scriptsUpdate {
		writeText(t, file, want)
	}
	if got := readText(t, file); got != want {
		t.Errorf("scripts/README.md is not made of the helps of the scripts: go test ./lang -run TestScript -scripts.update")
	}
}

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
			if p.Type.Kind == probes.Bool {
				sets = append(sets, map[string]string{p.Name: "true"})
			}
		}
		for _, set := range sets {
			program, err := Compile(s.Name, s.Text, catalog.Probes(), Options{Params: set})
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			if _, err := NewPlan(program, PlanOptions{CPUs: 2, StackLeft: catalog.StackLeft}); err != nil {
				t.Errorf("%s with %v: %v", s.Name, set, err)
			}
		}
	}
}

func realCatalog(t *testing.T) []*probes.Probe {
	t.Helper()
	c, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.Probes()
}

// runScript runs a script as a command like "$ trace nvme_trace --nsid 1" says, on events, a line each:
//
//	1.5s nvme:complete_rq nsid=1 opcode=read        1.5s after the beginning; fields that are left out are absent, or 0
//	20 * 1.5s nvme:complete_rq nsid=1               twenty of them
//	2s interval                                     the interval clauses run
func runScript(t *testing.T, s scripts.Script, catalog []*probes.Probe, command, events string) string {
	t.Helper()
	program, err := Compile(s.Name, s.Text, catalog, Options{Params: scriptParams(t, s, command)})
	if err != nil {
		t.Fatal(err)
	}
	r := runProgram(t, program, time.Date(2026, 11, 21, 7, 40, 59, 0, time.UTC))
	r.printer.stacks = &stackStore{found: map[uint64]frames{}}
	for number, stack := range handmadeStacks {
		r.printer.stacks.found[uint64(number+1)] = stack
	}
	for line := range strings.Lines(events) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		times := 1
		if words[1] == "*" {
			if times, err = strconv.Atoi(words[0]); err != nil {
				t.Fatal(err)
			}
			words = words[2:]
		}
		at, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		r.clock = 1e9 + uint64(at)
		if words[1] == "interval" {
			r.moment(t, onInterval)
			continue
		}
		for range times {
			e, probe := handmade(t, catalog, words[1:])
			e.table["nsecs"] = r.clock
			r.eventOf(t, probe, e)
		}
	}
	r.moment(t, onEnd)
	for _, m := range program.maps {
		if err := r.printMap(m, mapOptions{elapsed: r.elapsed(m)}); err != nil {
			t.Fatal(err)
		}
	}
	return r.out.String()
}

// scriptParams reads the flags of a command.
func scriptParams(t *testing.T, s scripts.Script, command string) map[string]string {
	t.Helper()
	words := strings.Fields(command)
	if len(words) < 3 || words[0] != "$" || words[1] != "trace" || words[2] != s.Name {
		t.Fatalf("%q does not begin with $ trace %s", command, s.Name)
	}
	params := map[string]string{}
	for words = words[3:]; len(words) > 0; words = words[1:] {
		name, value, given := strings.Cut(strings.TrimPrefix(words[0], "--"), "=")
		if !given {
			value = "true"
		}
		params[name] = value
	}
	return params
}

// handmadeStacks are those that events name by a number from 1 on: kstack=1 ustack=2.
var handmadeStacks = []frames{
	{"_ib_modify_qp+0x3a1 [ib_core]", "ib_modify_qp_with_udata+0x27 [ib_core]", "modify_qp+0x3fa [ib_uverbs]", "ib_uverbs_ioctl+0xc3 [ib_uverbs]", "do_syscall_64+0x82"},
	{"ioctl+0xb (libc.so.6)", "ibv_cmd_modify_qp+0x1c2 (libibverbs.so.1)", "ctx_modify_qp_to_rtr+0x9f (ib_send_bw)", "main+0x41c (ib_send_bw)"},
	{"ib_create_qp_user+0x1e0 [ib_core]", "create_qp+0x6f1 [ib_uverbs]", "ib_uverbs_ioctl+0xc3 [ib_uverbs]", "do_syscall_64+0x82"},
	{"ioctl+0xb (libc.so.6)", "ibv_cmd_create_qp_ex2+0x2d4 (libibverbs.so.1)", "ncclIbCreateQp+0x118 (libnccl.so.2)"},
}

// handmadeEvent is a table of fields, and two stacks of the kernel and of the process.
type handmadeEvent struct {
	table
	stacks [2]any
}

func (e handmadeEvent) Value(i int) (any, bool) { return e.stacks[i], e.stacks[i] != nil }

// handmade makes an event of words like "nvme:complete_rq", "nsid=1".
func handmade(t *testing.T, catalog []*probes.Probe, words []string) (handmadeEvent, *probes.Probe) {
	t.Helper()
	var probe *probes.Probe
	for _, p := range catalog {
		if p.String() == words[0] {
			probe = p
		}
	}
	if probe == nil {
		t.Fatalf("no probe %s", words[0])
	}
	e := handmadeEvent{table: table{}}
	for _, f := range probe.Fields {
		if !f.Optional {
			e.table[f.Name] = zeroOf(f.Type, nil)
		}
	}
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		if i := slices.Index([]string{"kstack", "ustack"}, name); i >= 0 {
			number, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			e.stacks[i] = number
			continue
		}
		f := probe.Field(name)
		if f == nil {
			t.Fatalf("%s has no field %s", probe, name)
		}
		e.table[name] = fieldValue(t, f, text)
	}
	return e, probe
}

// fieldValue reads a value as it is written in programs, strings without quotes.
func fieldValue(t *testing.T, f *probes.Field, text string) any {
	t.Helper()
	if enum := enumOf(&f.Type); enum != nil {
		if v, ok := enum.Value(strings.TrimPrefix(text, "-")); ok {
			if strings.HasPrefix(text, "-") {
				v = -v
			}
			return as(f.Type.Kind, v)
		}
	}
	switch f.Type.Kind {
	case probes.String:
		return text
	case probes.Bool:
		return text == "true"
	case probes.GID:
		raw := netip.MustParseAddr(text).As16()
		return string(raw[:])
	}
	tree, err := syntax.Parse("value", text)
	if err != nil {
		t.Fatalf("%s=%s: %v", f.Name, text, err)
	}
	v, _, ok := literalValue(tree.Expr)
	if !ok {
		t.Fatalf("%s=%s is no number", f.Name, text)
	}
	return as(f.Type.Kind, v)
}

func readText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A pattern for probes that a recording lacks is left out of a clause that has others; a mistake is none, and a full name asks for the probe.
func TestPatternsOfRecordings(t *testing.T) {
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	var recorded []*probes.Probe
	for _, p := range catalog.Probes() {
		if p.Group == "ib" {
			recorded = append(recorded, p)
		}
	}
	for text, want := range map[string]string{
		"ib:*_qp, mlx5:* { @ = count() }":    "",
		"mlx5:*_qp, ib:*_qp { @ = count() }": "",
		"mlx5:* { @ = count() }":             "no probe is called mlx5:*",
		"ib:*_qp, mlx5:cmd { @ = count() }":  "no probe is called mlx5:cmd",
		"ib:*_qp, mlx6:* { @ = count() }":    "no probe is called mlx6:*",
	} {
		_, err := Compile("p", text, recorded, Options{Known: catalog.Probes()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if _, err := Compile("p", text, recorded, Options{}); err == nil {
			t.Errorf("%s: a host has all probes that trace knows", text)
		}
	}
}

package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"trace/lang/check"
	"trace/lang/codegen"
	"trace/lang/ir"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes/event"
)

// testRun is a program that runs in user space on events made by hand.
type testRun struct {
	*machine
	program *ir.Program
	blocks  map[*ir.Site]*block
	clock   uint64 // what now returns
	out     bytes.Buffer
	warned  string
}

// startRun compiles a program, and runs its begin clauses at 1s.
func startRun(t *testing.T, src string) *testRun {
	t.Helper()
	p, err := compile("program", src, langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatalf("%s:\n%v", src, err)
	}
	return runProgram(t, p, time.Unix(0, 0).UTC())
}

// runProgram runs the begin clauses of a program at 1s after boot.
func runProgram(t *testing.T, p *ir.Program, boot time.Time) *testRun {
	t.Helper()
	r := &testRun{program: p, blocks: map[*ir.Site]*block{}, clock: 1e9}
	r.machine = &machine{
		warn:   func(_ bool, text string) { r.warned += text + "\n" },
		stores: map[*ir.Map]mapStore{}, sink: output.NewPrinter(&r.out, output.Text, event.NewWallClock(boot)),
		clock: func() uint64 { return r.clock }, started: r.clock, ctx: t.Context(),
	}
	var err error
	for _, m := range p.Maps {
		r.stores[m] = newUserStore(m, 100)
	}
	for _, c := range p.Clauses {
		for _, b := range c.Sites {
			if r.blocks[b], err = compileBody(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.moment(t, ir.OnBegin)
	return r
}

// scope returns the scope of a clause that no event triggers.
func (r *testRun) scope() *scope { return &scope{setting: r.setting(r.clock), machine: r.machine} }

// moment runs the clauses of a kind.
func (r *testRun) moment(t *testing.T, kind ir.ClauseKind) {
	t.Helper()
	for _, c := range r.program.Clauses {
		if c.Kind != kind {
			continue
		}
		for _, b := range c.Sites {
			if err := r.run(r.blocks[b], r.scope()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// event runs the clauses of a probe.
func (r *testRun) event(t *testing.T, probe string, e event.Source) {
	t.Helper()
	r.eventOf(t, langtest.Fixture(probe), e)
}

func (r *testRun) eventOf(t *testing.T, p *event.Probe, e event.Source) {
	t.Helper()
	for _, c := range r.program.Clauses {
		if !slices.Contains(c.Probes, p) {
			continue
		}
		b := c.Sites[p]
		sc := &scope{setting: r.setting(0), event: e, stacks: map[ir.StackUse]int{{Word: "kstack", Frames: event.MaxFrames}: 0, {Word: "ustack", Frames: event.MaxFrames}: 1}}
		if err := r.run(r.blocks[b], sc); err != nil {
			t.Fatal(err)
		}
	}
}

// maps returns the contents of all maps.
func (r *testRun) maps(t *testing.T) string {
	text := ""
	for _, m := range r.program.Maps {
		text += m.Name + ": " + contents(t, r.stores[m])
	}
	return strings.TrimSpace(text)
}

// numbers is the event of most tests. Fields whose names begin with o are absent.
var numbers = langtest.Table{"nsecs": uint64(1.5e9), "u8": uint64(200), "u64": uint64(3), "s8": int64(-7), "s64": int64(1), "b": true}

// TestStatements runs a block on one event and compares the maps.
func TestStatements(t *testing.T) {
	for _, test := range []struct{ src, want string }{
		// maps
		{"@ = 1", "@: [][1]"},
		{"@ = 1; @ = 2", "@: [][2]"},
		{"@[u8, s8] = u64 + 1", "@: [200 -7][4]"},
		{"@x += 2; @x += 3; @x -= 1; @x++; @x++; @x--", "@x: [][5]"},
		{"@x = 6; @x *= 2; @x /= 5; @x <<= 4; @x |= 1; @x %= 10; @x ^= 1", "@x: [][2]"},
		{"@x += s8", "@x: [][-7]"},
		{"@a = @b; @b = 7; @a += @b", "@a: [][7] @b: [][7]"},
		{"@a[1] = 5; @b = @a[1] + @a[2]", "@a: [1][5] @b: [][5]"},
		{"@[1] = 1; @[2] = 2; delete(@, 1)", "@: [2][2]"},
		{"@[1] = 1; @[2] = 2; delete(@, 3); @n = len(@)", "@: [1][1] [2][2] @n: [][2]"},
		{"@[1] = 1; @yes = has_key(@, 1); @no = has_key(@, 2)", "@: [1][1] @yes: [][true] @no: [][false]"},
		{"@[1] = 1; clear(@); @[2] = 2", "@: [2][2]"},
		{"@ = 1; @a[1] = delete(@); @a[2] = delete(@)", "@: @a: [1][true] [2][false]"},
		{"@ = count(); @a[1] = delete(@); @a[2] = delete(@)", "@: @a: [1][true] [2][false]"},
		{"$i = 1; @[1] = 1; @[2] = 2; @a = delete(@, $i++); @b = $i", "@: [2][2] @a: [][true] @b: [][2]"},
		{"$i = 1; @[1, 2] = 1; @a = delete(@[$i++, $i++]); @b = $i", "@: @a: [][true] @b: [][3]"},
		{"for ($i : 0..64) { @[0] = 1; @n += delete(@, rand % 2) ? len(@) : len(@) - 1 } clear(@)", "@: @n: [][0]"},
		{"@[1] = 1; zero(@); @[2] = 2", "@: [1][0] [2][2]"},
		{"@s[1] = \"x\"; @t = @s[1]; @u = @s[2]", "@s: [1][x] @t: [][x] @u: [][]"},

		// aggregations
		{"@ = count(); @ = count()", "@: [][2]"},
		{"@ = sum(u64); @ = sum(u64)", "@: [][6]"},
		{"@ = avg(s8); @ = avg(s8)", "@: [][2 18446744073709551602]"},
		{"@a[u8] = max(u64); @a[u8] = max(u8); @b = @a[200]", "@a: [200][1 200] @b: [][200]"},
		{"@a = count(); @b = @a > 0 ? 1 : 2; clear(@a); @c = @a", "@a: @b: [][1] @c: [][0]"},
		{"@a = count(); zero(@a)", "@a: [][0]"},
		{"@a = min(s8); @a = min(u8); @b = @a", "@a: [][1 18446744073709551609] @b: [][-7]"},
		{"@a = min(ou64); @b = @a", "@a: @b: [][0]"},

		// absent values
		{"@ = ou64", "@:"},
		{"@ = 1; @ = ou64", "@: [][1]"},
		{"@ += ou64", "@:"},
		{"@ = sum(ou64)", "@:"},
		{"@[ou64] = count(); @[u64] = count(); @[ou64] = count()", "@: [<nil>][2] [3][1]"},
		{"@ = (u64, ou64)", "@: [][3 <nil>]"},
		{"$v = ou64; @ = $v ?? 9", "@: [][9]"},
		{"$v = ou64; $v = 5; @ = $v ?? 9", "@: [][5]"},
		{"if (ou64 > 1) { @ = 1 } else { @ = 2 }", "@: [][2]"},
		{"if (!ob) { @ = 1 } else { @ = 2 }", "@: [][2]"},
		{"@a[ou64] = 1; @b = @a[ou64]; @c = has_key(@a, ou64); delete(@a, ou64)", "@a: @b: [][1] @c: [][true]"},

		// choices
		{"if (u64 == 3) { @ = 1 }", "@: [][1]"},
		{"if (u64 == 4) { @ = 1 }", "@:"},
		{"if (u64) { @ = 1 }", "@: [][1]"},
		{"if (u64 == 1) { @ = 1 } else if (u64 == 3) { @ = 2 } else { @ = 3 }", "@: [][2]"},
		{"if (b) { if (u64 == 3) { @ = 1; @ = 2 } @ += 10 }", "@: [][12]"},
		{"@a = 1; if (b) { return } @b = 1", "@a: [][1] @b:"},
		{"if (b) { if (b) { return } } @ = 1", "@:"},

		// variables
		{"$a = u64; $b = $a * 2; $a = 1; @ = $a + $b", "@: [][7]"},
		{"$a = 1; if (b) { $a = 2 } @ = $a", "@: [][2]"},
		{"if (b) { $a = 2; @x = $a } else { $a = \"s\"; @y = $a }", "@x: [][2] @y:"},
		{"$a = 0; $a++; $a += 5; $a--; @ = $a", "@: [][5]"},
		{"$t = (u64, \"x\"); @a = $t.0; @b = $t.1", "@a: [][3] @b: [][x]"},

		// tuples
		{"@ = (1, \"x\")", "@: [][1 x]"},
		{"@[1] = (1, \"x\"); @a = @[1].0; @b = @[2].1", "@: [1][1 x] @a: [][1] @b: [][]"},
		{"$t = (1, 2); @ = $t; @ = (3, @.1)", "@: [][3 2]"},
		{"@[(1, 2)] = 1; @[1, 2] += 1", "@: [1 2][2]"},

		// casts
		{"@a = (int8)u8; @b = (uint8)s8; @c = (uint64)s8", "@a: [][-56] @b: [][249] @c: [][18446744073709551609]"},

		// functions and names
		{"@ = elapsed", "@: [][500000000]"},
		{"@ = upper(comm ?? \"x\")", "@: [][X]"},
		{"@ = any(split(\"a,b\", \",\"), # == \"b\")", "@: [][true]"},
		{"@ = join(map(filter([u8, s8, u64], # > 0), string(# * 2)), \"+\")", "@: [][400+6]"},
		{"@a = first(filter([u8], # > 500)) ?? 1; @b = len([1, 2])", "@a: [][1] @b: [][2]"},
		{"@ = int(\"12\") + 1; @ = int(\"x\")", "@: [][13]"},
		{"exit(); @ = 1", "@:"},
	} {
		r := startRun(t, "unit:numbers { "+test.src+" }")
		r.event(t, "unit:numbers", numbers)
		if got := r.maps(t); got != test.want {
			t.Errorf("%s: got %s, want %s", test.src, got, test.want)
		}
	}
}

// TestLoops runs a body where there is no event.
func TestLoops(t *testing.T) {
	for _, test := range []struct{ src, want string }{
		{"for ($i : 0..4) { @[$i] = $i * $i }", "@: [0][0] [1][1] [2][4] [3][9]"},
		{"for ($i : -2..1) { @[$i] = 1 }", "@: [-2][1] [-1][1] [0][1]"},
		{"$n = 3; for ($i : $n..1) { @[$i] = 1 }", "@:"},
		{"for ($i : 0..int(\"x\")) { @[$i] = 1 }", "@:"},
		{"for ($i : 0..3) { for ($j : 0..$i) { @ += 1 } }", "@: [][3]"},
		{"for ($i : 0..9) { if ($i == 2) { return } @ = $i } @a = 1", "@: [][1] @a:"},
		{"@a[2] = 5; @a[1] = 6; $n = 0; for ($kv : @a) { $n++; @b[$n] = ($kv.0, $kv.1) }", "@a: [1][6] [2][5] @b: [1][1 6] [2][2 5]"},
		{"@a[1, \"x\"] = count(); for ($kv : @a) { @b[$kv.0.1] = $kv.1 }", "@a: [1 x][1] @b: [x][1]"},
		{"@a[1] = (9, 1); @a[2] = (8, 2); @a[3] = (8, 1); for ($kv : @a, by = \"value\") { $n = len(@b); @b[$n] = $kv.0 }",
			"@a: [1][9 1] [2][8 2] [3][8 1] @b: [0][3] [1][2] [2][1]"},
		{"@a[1] = sum(9); @a[2] = sum(8); for ($kv : @a, by = \"value\") { @b = $kv.0 }", "@a: [1][9] [2][8] @b: [][1]"},
		{"@a[1] = (2, 3); for ($kv : @a) { @b = $kv.1.1 }", "@a: [1][2 3] @b: [][3]"},
		{"@a[1] = 1; for ($kv : @a) { @a[$kv.0 + 1] = 1 }", "@a: [1][1] [2][1]"}, // a snapshot
		{"$i = 7; for ($i : 0..2) { $x = $i; @[$x] = 1 } @i = $i", "@: [0][1] [1][1] @i: [][7]"},
		{"@a[1] = 1; @a[2] = 1; for ($kv : @a) { delete(@a, $kv.0); @n++ }", "@a: @n: [][2]"},
	} {
		r := startRun(t, "begin { "+test.src+" }")
		if got := r.maps(t); got != test.want {
			t.Errorf("%s: got %s, want %s", test.src, got, test.want)
		}
	}
}

// TestCounters checks that failed updates are counted.
func TestCounters(t *testing.T) {
	for src, want := range map[string]codegen.MapCounters{
		"@ = ou64":       {Absent: 1},
		"@ += ou64":      {Absent: 1},
		"@ = sum(ou64)":  {Absent: 1},
		"@ = hist(ou64)": {Absent: 1},
		"@ = (u8, ou64)": {},
		"@[ou64] = 1":    {},
	} {
		r := startRun(t, "unit:numbers { "+src+" }")
		r.event(t, "unit:numbers", numbers)
		if got := r.stores[r.program.Maps[0]].(*userStore).counters(); got != want {
			t.Errorf("%s: got %+v", src, got)
		}
	}
	r := startRun(t, "begin { for ($i : 0..103) { @[$i] = 1 } }")
	if got := r.stores[r.program.Maps[0]].(*userStore).counters(); got != (codegen.MapCounters{Full: 3}) {
		t.Errorf("103 keys where 100 have room: got %+v", got)
	}
}

func TestPredicate(t *testing.T) {
	r := startRun(t, "unit:numbers / ou64 > 1 / { @absent = 1 }\nunit:numbers / s8 < 0 / { @yes = 1 }\nunit:numbers / @yes == 2 / { @no = 1 }")
	r.event(t, "unit:numbers", numbers)
	if got, want := r.maps(t), "@absent: @yes: [][1] @no:"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestVariablesBegin checks that a variable does not keep its value from one event to the next.
func TestVariablesBegin(t *testing.T) {
	r := startRun(t, "unit:numbers { $n = 0; if (@seen == 0) { $n = 5 } @seen = 1; @n = $n }")
	r.event(t, "unit:numbers", numbers)
	r.event(t, "unit:numbers", numbers)
	if got, want := r.maps(t), "@seen: [][1] @n: [][0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMoments(t *testing.T) {
	r := startRun(t, "begin { @a = 1 }\nunit:numbers { @a++ }\nend { @a *= 10 }\ninterval:1s { @now = nsecs; @since = elapsed; exit() }")
	r.event(t, "unit:numbers", numbers)
	r.clock = 3e9
	r.moment(t, ir.OnInterval)
	if !r.stopped {
		t.Error("exit() did not stop")
	}
	r.moment(t, ir.OnEnd)
	if got, want := r.maps(t), "@a: [][20] @now: [][3000000000] @since: [][2000000000]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPrint checks what is printed. The tests of the printer check how.
// TestReports checks what a program reports to the user.
func TestReports(t *testing.T) {
	r := startRun(t, `unit:numbers { warnf("hm %d", u64); errorf("bad\n"); cat("/nosuch"); assert(u64 > 5, "too small"); print(1) }`)
	r.event(t, "unit:numbers", numbers)
	const want = `program:1:16-35: WARNING: hm 3
program:1:37-52: ERROR: bad

ERROR: failed to open file '/nosuch' (No such file or directory)
program:1:70-98: ERROR: assert failed: too small
`
	if r.warned != want || r.out.String() != "" || !r.stopped || *r.status != 1 {
		t.Errorf("got %s and %s", r.warned, r.out.String())
	}
}

func TestPrint(t *testing.T) {
	for _, test := range []struct{ src, want string }{
		{`printf("%d %s\n", u64, comm ?? "none")`, "3 none\n"},
		{`printf("hello\n")`, "hello\n"},
		{`print(u64 + 1)`, "4\n"},
		{`print("x")`, "x\n"},
		{`print((1, 2))`, "(1, 2)\n"},
		{`@[1] = 5; @[2] = 4; print(@)`, "@[2]: 4\n@[1]: 5\n"},
		{`@[1] = 5; @[2] = 4; print(@, 1)`, "@[1]: 5\n"},
		{`@[1] = 5; print(@[1]); print(@[2])`, "5\n0\n"},
		{`@[1] = count(); print(@[1]); print(@[2])`, "1\n0\n"},
		{`time("%H:%M:%S\n")`, "00:00:01\n"},
		{`printf("%s", strftime("%H:%M:%S", nsecs))`, "00:00:01"},
		{`print((strerror(2), strerror(-13), strerror(0), strerror(9999)))`, "(No such file or directory, Permission denied, Success, Unknown error)\n"},
		{`print((signal_name(9), signal_name(35)))`, "(Killed, Real-time signal 1)\n"},
		{`print((syscall_name(0), syscall_name(9999)))`, "(read, Unknown syscall)\n"},
		{`print((macaddr(0x060504030201), ntop(2, 0x0100007f), ntop(pton("::1")), ntop(pton("10.9.0.1")), pton("127.0.0.1")))`,
			"(01:02:03:04:05:06, 127.0.0.1, ::1, 10.9.0.1, [127,0,0,1])\n"},
		{`cat("/proc/sys/kernel/%s", "ostype")`, "Linux\n"},
		{`join(["a", "b"]); join(["a", "b"], "-"); assert(u64 == 3, "no"); static_assert(1 < 2, "no"); warnf("not printed")`, "a b\na-b\n"},
		{`assert(u64 == 4, "no"); print(1)`, ""},
		{`@["a"] = stats(u64); print(@)`, "@[a]: { .count = 1, .average = 3, .total = 3 }\n"},
		{`print((bswap(0x1234), bswap(-1), bswap(5), bswap((uint16)5), bswap((uint64)5), bswap(u64)))`,
			"(13330, 255, 5, 1280, 360287970189639680, 216172782113783808)\n"},
		{`print((memcmp("hello", "help", 3), memcmp("hello", "help", 4), memcmp("a", "", 5), memcmp("ab", "abc", 9)))`, "(0, -4, 97, -99)\n"},
		{`print((buf("hello", 3), buf("hi"), strcap("hello"), strcap(comm ?? "")))`, "(hel, hi, 6, 16)\n"},
		{`@m[1] = 2; let $v; $found = find(@m, 1, $v); print(($found, $v)); if (find(@m, 7, $v)) { print("no") } print($v)`, "(true, 2)\n2\n"},
		{`@m[1] = 2; @m[3] = 4; print((delete(@m, 1), delete(@m, 1), delete(@m[3]), len(@m)))`, "(true, false, true, 0)\n"},
	} {
		r := startRun(t, "unit:numbers { "+test.src+" }")
		r.event(t, "unit:numbers", numbers)
		if got := r.out.String(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.src, got, test.want)
		}
	}
	r := startRun(t, "nvme:complete_rq / size > 4KiB /")
	r.event(t, "nvme:complete_rq", langtest.Table{"size": uint64(8192)})
	r.event(t, "nvme:complete_rq", langtest.Table{"size": uint64(1)})
	if got := r.out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "size=8KiB") {
		t.Errorf("a clause without a block prints %q", got)
	}
}

// TestRate checks that a rate counts from when the map was last printed, cleared or zeroed.
func TestRate(t *testing.T) {
	r := startRun(t, "unit:numbers { @ = rate() }\ninterval:1s { print(@) }\nsyscall:exit / ret == 0 / { clear(@) }\nsyscall:exit / ret != 0 / { zero(@) }")
	step := func(seconds uint64, events int, want string) {
		t.Helper()
		for range events {
			r.event(t, "unit:numbers", numbers)
		}
		r.clock += seconds * 1e9
		r.out.Reset()
		r.moment(t, ir.OnInterval)
		if got := r.out.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	step(2, 6, "@: 3/s\n")
	step(1, 4, "@: 4/s\n")
	step(5, 0, "@: 0/s\n")
	for _, ret := range []int64{0, 1} {
		r.event(t, "unit:numbers", numbers)
		r.clock += 8e9
		r.event(t, "syscall:exit", langtest.Table{"ret": ret})
		step(2, 4, "@: 2/s\n")
	}
}

// TestRateBegins checks that a rate that is cleared as of a moment counts from there, without earlier values and the time of
// clearing.
func TestRateBegins(t *testing.T) {
	r := startRun(t, "unit:numbers { @ = rate(); @n = count() }\ninterval:1s { print(@); print(@n) }")
	r.event(t, "unit:numbers", numbers)
	r.clock += 3e9
	for _, m := range r.program.Maps {
		if !m.Agg.Traits().Restarts {
			continue
		}
		if err := r.empty(m, r.clock, mapStore.clear); err != nil {
			t.Fatal(err)
		}
	}
	r.event(t, "unit:numbers", numbers)
	r.event(t, "unit:numbers", numbers)
	r.clock += 1e9
	r.moment(t, ir.OnInterval)
	if got, want := r.out.String(), "@: 2/s\n@n: 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEndlessLoop checks that a loop can be cut short.
func TestEndlessLoop(t *testing.T) {
	for _, src := range []string{
		"for ($i : 0..0x7fffffffffffffff) { @ = $i }",
		"for ($i : 0..0x7fffffff) { for ($j : 0..0x7fffffff) { @ = $i } }",
	} {
		r := startRun(t, "interval:1s { "+src+"; @after = 1 }")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r.ctx = ctx
		clause := r.program.Clauses[0].Sites[nil]
		if err := r.run(r.blocks[clause], r.scope()); !errors.Is(err, ErrCut) {
			t.Errorf("%s: %v", src, err)
		}
		if got := r.maps(t); !strings.HasSuffix(got, "@after:") {
			t.Errorf("%s: went on: %s", src, got)
		}
	}
}

func BenchmarkStatements(b *testing.B) {
	p, err := compile("program", "unit:numbers / u64 > 1 / { @[u8, b] = sum(u64) }", langtest.Catalog, check.Options{})
	if err != nil {
		b.Fatal(err)
	}
	m := &machine{stores: map[*ir.Map]mapStore{p.Maps[0]: newUserStore(p.Maps[0], 100)}}
	block, err := compileBody(p.Clauses[0].Sites[langtest.Fixture("unit:numbers")])
	if err != nil {
		b.Fatal(err)
	}
	sc := &scope{event: numbers}
	b.ReportAllocs()
	for b.Loop() {
		if err := m.run(block, sc); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMapErrors(t *testing.T) {
	program, err := compile("program", "begin { @a = 1; @b = 1 }", langtest.Catalog, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := plan.New(program, plan.Options{Recorded: true, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := Start(plan, Options{Now: func() uint64 { return 1 }, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if err := run.PrintMap(mute{}, "@c", 0, ""); err == nil || err.Error() != "there is no map @c: the maps are @a, @b" {
		t.Errorf("got %v", err)
	}
	err = tooMuch(&ebpf.MapSpec{Name: "at_a", MaxEntries: 7}, syscall.ENOMEM)
	if want := "map at_a with room for 7 keys: cannot allocate memory (choose a smaller --map-size)"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = tooMuch(&ebpf.MapSpec{Name: "at_a", MaxEntries: 7}, fmt.Errorf("map create: %w (consider this)", syscall.EPERM))
	if want := "map at_a: operation not permitted: a seccomp filter, a security module, or the user namespace of a container forbids bpf(2), or before Linux 5.11 the limit on locked memory is too low (ulimit -l unlimited)"; err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

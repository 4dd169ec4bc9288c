//go:build vm

package exec

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"trace/lang/check"
	"trace/lang/output"
	"trace/lang/plan"
	"trace/probes"
	"trace/probes/event"
)

// TestVMConstructs attaches every probe of the catalog with every construct that the kernel can run, on its fields. Nothing in it
// may need user space, and the kernel must accept it. Without -full it uses the probe of each group with the most fields, which
// leaves the least room.
func TestVMConstructs(t *testing.T) {
	if out, err := exec.Command("modprobe", "-a", "ib_uverbs", "mlx5_ib", "nvme").CombinedOutput(); err != nil {
		t.Fatalf("modprobe: %v\n%s", err, out)
	}
	catalog, err := probes.Load()
	if err != nil {
		t.Fatal(err)
	}
	host, err := probes.Detect(catalog, probes.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tried := catalog.Probes()
	if !*vmFull {
		tried = largest(tried)
	}
	for _, p := range tried {
		if s := host.Status(p); s.Variant == "" {
			t.Run(p.String(), func(t *testing.T) { t.Skip(s.Reason) }) // TestVMNothingIsMissing knows what has to be there
			continue
		}
		for i, text := range slices.Concat(keys(p), constructs(catalog, p)) {
			t.Run(fmt.Sprintf("%s/%d", p, i), func(t *testing.T) {
				attach(t, catalog, host, text)
			})
		}
	}
}

// largest returns the probe with the most fields of each group.
func largest(all []*event.Probe) []*event.Probe {
	var found []*event.Probe
	for _, p := range all {
		i := slices.IndexFunc(found, func(o *event.Probe) bool { return o.Group == p.Group })
		switch {
		case i < 0:
			found = append(found, p)
		case len(p.Fields) > len(found[i].Fields):
			found[i] = p
		}
	}
	return found
}

// attach compiles a program, which must run entirely in the kernel, and attaches it for a moment.
func attach(t *testing.T, catalog *probes.Catalog, host *probes.Host, text string) {
	t.Helper()
	program, err := compile("program", text, catalog.Probes(), check.Options{Unsafe: true})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	cpus := ebpf.MustPossibleCPU()
	plan, err := plan.New(program, plan.Options{StackLeft: catalog.StackLeft, CompareExchange: plan.CompareExchange, CPUs: cpus, MapKeys: 64})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	for _, b := range plan.Sites {
		if b.InUser != nil {
			t.Errorf("%s: %s", b.Clause, b.InUser.Reason)
		}
	}
	var out bytes.Buffer
	run, err := Start(plan, Options{Sink: output.NewPrinter(&out, output.Text, event.NewWallClock(time.Now())), Now: now, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	session, err := probes.Attach(t.Context(), host, plan.Requests(), probes.AttachOptions{Maps: run.Maps(), Layouts: plan.Layouts()})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if err := session.Read(ctx, func(e *event.Event) error { _, err := run.Event(e); return err }); err != nil {
		t.Error(err)
	}
	if err := run.End(); err != nil {
		t.Error(err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "@count: ") && strings.Contains(text, "@count") {
		t.Errorf("no map in the output:\n%s", &out)
	}
}

// constructs uses every construct, in programs that the verifier can follow: it goes through all ways of all clauses of a probe.
func constructs(catalog *probes.Catalog, p *event.Probe) []string {
	number := "nsecs"
	for _, f := range p.Fields {
		if !f.Common && event.IsNumber(f.Type) && f.Type.Enum == nil {
			number = f.Name
		}
	}
	name := p.String()
	if p.Group == "profile" {
		name = "profile:97hz"
	}
	programs := [][]string{{
		`P / (X >= 0 || X < 0) && comm != "nobody" && !(pid == 4000000000) && (pid in [1, 2..5000000]) && comm startsWith "" / {
	@count = count(); @sum[comm] = sum(X); @avg[pid, X] = avg(X); @min[X] = min(X); @max = max(X); @stats[comm] = stats(X)
}`,
		`P { @hist[comm] = hist(X, 2); @low = hist(X, min=5, shift=3); @lhist[tid] = lhist(X, 0, 1000, 10); @quantile = quantile(X, 50, 99) }`,
		`P { @rate[cpu] = rate(); @gauge[tid] = gauge(1); @set[tid] = nsecs; @who[tid] = comm; @pair[tid] = (comm, X); @added += 2; @n[comm]++ }`,
		`P { $v = X * 3 / 7 % 5 + 1; $w = comm
	if (has_key(@set, tid) && nsecs > @set[tid]) { @yes = count(); delete(@set, tid) } else if ($v << 2 >> 1 != (X & 3 | 4) ^ ~X) { @no[$w, $v] = count() } else { return }
	@after = count()
}`,
		`P { @cast[(int8)X, (uint16)X, X == nil, X ?? 1, X > 5 ? 1 : 2, elapsed > 1s] = count(); printf("%d %s %d\n", X, comm, @n[comm]) }`,
		`P / @set[tid] > 0 / { @late = count() }`,
	}, {
		`P { $t = (pid, X); if ($t != (4000000000, 1) && $t in [(1, 1), $t]) { @t[$t] = count(); print($t) } }`,
		`P / rand % 3 >= 0 / { $i = 1; for ($j : 0..4) { if ($j == 2) { continue } @n[comm] += $i++ }
	unroll (3) { if ($i > 5) { break } @added += $i-- } let $c: uint8 = X ?? 1; @added += (bool)$c ? $c : $i
}`,
		`P { @top = topk(X, 10); @of[comm] = topk((tid, X), 5, 3) }`,
	}}
	stacks := []string{
		`P { @k[kstack, ustack(5)] = count(); @u[comm] = ustack; $s = kstack(3); @same[$s == kstack(3)] = count() }`,
		`P / kstack != nil || ustack(2) == nil / { printf("%s %s\n", kstack(2), ustack(127)); @last[tid] = kstack }`,
		`P / kstack == @last[tid] / { @again = count() }`,
		`P { @stacks = topk(kstack, 3) }`,
		`P / pid == 4000000000 / { signal("KILL"); signal_thread(X); printf("nobody\n"); exit() }`,
	}
	if _, err := compile("program", name+" { @[kstack, ustack] = count() }", catalog.Probes(), check.Options{}); err == nil { // it is of the current task
		programs = append(programs, stacks)
	}
	var all []string
	for _, clauses := range programs {
		all = append(all, strings.NewReplacer("P ", name+" ", "X", number).Replace(strings.Join(clauses, "\n")))
	}
	return all
}

// keys uses every field of the probe as a key and in a predicate, some in each program. The presence of each is a branch, and the
// kernel follows all combinations.
func keys(p *event.Probe) []string {
	name := p.String()
	if p.Group == "profile" {
		name = "profile:97hz"
	}
	var programs []string
	for fields := range slices.Chunk(p.Fields, 8) {
		var b strings.Builder
		for i, f := range fields {
			fmt.Fprintf(&b, "%s / event.%s == event.%[2]s / { @f%d[event.%[2]s] = count() }\n", name, f.Name, i)
		}
		programs = append(programs, b.String())
	}
	return programs
}

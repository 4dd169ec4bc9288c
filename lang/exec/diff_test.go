package exec

import (
	"errors"
	stdflag "flag" // flag is a type of the fixture
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trace/lang/codegen/bpftest"
	"trace/probes/event"
)

// The differential test: random programs on random events, in the kernel, in user space, and by a third opinion. All must agree on
// what is printed, on what every map holds, and on what is counted as lost.
//
//	go test ./lang/exec -run TestDifferential                                     # for one minute
//	go test ./lang/exec -run TestDifferential -diff.programs 100000 -timeout 1h   # that many programs
//	go test ./lang/exec -run TestDifferential -diff.seed 17 -diff.only 4711       # one that failed
//	go test ./lang/exec -run TestDifferential -diff.save lang/exec/testdata/diff       # writes failing cases, shrunk
//
// A program that the kernel rejects is a failure. So is a program that the planner leaves to user space without need.
var (
	diffTime     = stdflag.Duration("diff.time", time.Minute, "how long the differential test runs")
	diffPrograms = stdflag.Int64("diff.programs", 0, "how many programs it runs; 0: as many as there is time for")
	diffSeed     = stdflag.Uint64("diff.seed", 0, "of its programs and events; 0: another each time")
	diffOnly     = stdflag.Int64("diff.only", -1, "run only this program of the seed")
	diffSave     = stdflag.String("diff.save", "", "folder for cases that fail")
)

// diffSetup skips the test if BPF programs cannot be loaded.
func diffSetup(t *testing.T) (*diffKernel, []*event.Probe) {
	t.Helper()
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	k, err := newDiffKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return k, diffProbes(t)
}

// TestDifferentialLimits runs programs that are too large for the kernel: everything that shares maps with the clause must then be
// in user space.
func TestDifferentialLimits(t *testing.T) {
	k, all := diffSetup(t)
	key := "str32" + strings.Repeat(", str32", 15)
	for _, test := range []struct{ name, text string }{
		{"stack", "diff:event { @a[" + key + "] = count() }"},
		{"shared", "diff:event { @a[" + key + "] = count(); @b[s8] = sum(u8) }\ndiff:other { @b[u8] = sum(s8) }"},
		{"instructions", "diff:event / u64 in [s64" + strings.Repeat(", s64 * u64 / s32", 700) + "] / { @a = count() }"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := randomCase(1, 1, all)
			c.prog, c.text, c.inUser = nil, test.text, false
			if f := c.run(k); f == nil || f.kind != "fallback" {
				t.Errorf("it is not left to user space: %v", f)
			}
			c.inUser = true
			if f := c.run(k); f != nil {
				t.Errorf("%s: %s", f.kind, f.detail)
			}
		})
	}
}

// TestDifferentialCases runs every case that ever failed.
func TestDifferentialCases(t *testing.T) {
	k, all := diffSetup(t)
	files, err := filepath.Glob("testdata/diff/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := readCase(string(text), all)
			if err != nil {
				t.Fatal(err)
			}
			if f := c.run(k); f != nil {
				t.Errorf("%s: %s\n%s", f.kind, f.detail, c)
			}
		})
	}
}

func TestDifferential(t *testing.T) {
	if *diffSeed == 0 {
		*diffSeed = uint64(time.Now().UnixNano())
	}
	if testing.Short() && *diffTime == time.Minute {
		*diffTime = 2 * time.Second
	}
	d := &differential{seed: *diffSeed, only: *diffOnly, programs: *diffPrograms, began: time.Now()}
	if d.programs == 0 {
		d.end = d.began.Add(*diffTime)
	}
	var shards sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) { // some wait for the kernel
		k, all := diffSetup(t)
		shards.Go(func() { d.shard(t, k, all) })
	}
	shards.Wait()
	took := time.Since(d.began).Round(time.Second)
	if d.long.Load() > 1+d.done.Load()/1000 {
		t.Errorf("loops of %d programs are too long for the kernel", d.long.Load())
	}
	t.Logf("%d programs on %d events each in %v, -diff.seed %d", d.done.Load(), diffEvents, took, d.seed)
}

// differential is what the shards share.
type differential struct {
	seed           uint64
	only, programs int64
	began, end     time.Time
	next, done     atomic.Int64
	failed, long   atomic.Int64
}

// maxDifferences ends the test.
const maxDifferences = 5

func (d *differential) shard(t *testing.T, k *diffKernel, all []*event.Probe) {
	for d.failed.Load() < maxDifferences {
		n := d.next.Add(1) - 1
		switch {
		case d.only >= 0 && n > 0, d.programs > 0 && n >= d.programs, d.programs == 0 && time.Now().After(d.end):
			return
		case d.only >= 0:
			n = d.only
		}
		c := randomCase(d.seed, n, all)
		if f := c.run(k); f != nil {
			d.failed.Add(1)
			t.Errorf("program %d of -diff.seed %d", n, d.seed)
			d.report(t, k, c, f)
		}
		if c.long {
			d.long.Add(1)
		}
		d.done.Add(1)
	}
}

// report makes a failing case small and prints it.
func (d *differential) report(t *testing.T, k *diffKernel, c *diffCase, f *diffFailure) {
	giveUp := time.Now().Add(time.Minute)
	c.shrink(func(c *diffCase) bool {
		if time.Now().After(giveUp) {
			return false
		}
		again := c.run(k)
		return again != nil && again.kind == f.kind
	})
	first := f
	if f = c.run(k); f == nil {
		t.Errorf("%s: %s\nit does not fail again:\n%s", first.kind, first.detail, c)
		return
	}
	t.Errorf("%s: %s\n%s%s", f.kind, f.detail, c, c.code())
	if *diffSave != "" {
		name := filepath.Join(*diffSave, fmt.Sprintf("%s-%d.txt", strings.Fields(f.kind)[0], time.Now().UnixNano()))
		text := fmt.Sprintf("# %s: %s\n%s", f.kind, strings.ReplaceAll(f.detail, "\n", "\n# "), c)
		if err := errors.Join(os.MkdirAll(*diffSave, 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
			t.Error(err)
		}
	}
}

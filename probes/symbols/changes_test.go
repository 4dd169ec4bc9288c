//go:build linux

package symbols

import (
	"os/exec"
	"strings"
	"testing"
)

// What processes on a CPU do is known again after that CPU has come online: its ring is replaced, and what happened before is counted as lost.
func TestRingOfCPUComesBack(t *testing.T) {
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Skip(err)
	}
	c, err := watchChanges()
	if err != nil {
		t.Skip(err)
	}
	defer c.close()
	seen := func() (execs int) {
		if out, err := exec.Command(taskset, "-c", "0", "true").CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		c.read(func(ch change) {
			if strings.HasSuffix(ch.mapping.name, "/true") {
				execs++
			}
		})
		return execs
	}
	if seen() == 0 {
		t.Fatal("nothing is seen of a process on CPU 0")
	}
	rings := len(c.rings)
	c.rings[0].close()
	c.rings = c.rings[1:] // as if CPU 0 had been offline
	if n := seen(); n > 0 {
		t.Fatalf("%d notes of a CPU without a ring", n)
	}
	c.online(0)
	if seen() == 0 || len(c.rings) != rings || c.lost.Load() != 1 {
		t.Errorf("nothing is seen after the CPU came back, or of %d rings are %d, or %d are lost", rings, len(c.rings), c.lost.Load())
	}
	c.online(0) // the earlier ring is read to its end, then closed
	if seen() == 0 || len(c.rings) != rings {
		t.Errorf("%d rings, want %d", len(c.rings), rings)
	}
}

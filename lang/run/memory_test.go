//go:build linux

package run

import (
	"os"
	"testing"
)

// Maps that would take most of the memory are refused.
func TestMemory(t *testing.T) {
	if n, err := availableIn("MemTotal: 9 kB\nMemAvailable:       4 kB\n"); n != 4096 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := availableIn("MemTotal: 9 kB\n")
	wantError(t, err, "/proc/meminfo: no MemAvailable")
	if err := checkMemory(0); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/proc/meminfo"); err == nil {
		wantError(t, checkMemory(1<<50), "the maps of this program would take 1073741824 MiB, more than a quarter of the ")
		wantError(t, checkMemory(1<<50), " MiB of memory that are available: lower --map-size (--explain shows the size of each map)")
	}
}

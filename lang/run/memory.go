//go:build linux

package run

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
)

// checkMemory returns an error if the maps would take more than a quarter of the available memory. Maps are allocated whole.
func checkMemory(maps uint64) error {
	available, err := availableMemory()
	if err != nil || maps <= available/4 {
		return nil // without /proc the kernel decides
	}
	return fmt.Errorf("the maps of this program would take %d MiB, more than a quarter of the %d MiB of memory that are available: "+
		"lower --map-size (--explain shows the size of each map)", maps>>20, available>>20)
}

// availableMemory is MemAvailable of /proc/meminfo, in bytes.
func availableMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return availableIn(string(text))
}

// availableIn finds it in the text of /proc/meminfo.
func availableIn(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo: no MemAvailable")
}

// possibleCPUs returns how many values a per-CPU map has for a key.
func possibleCPUs() int {
	n, err := ebpf.PossibleCPU()
	if err != nil { // without /sys
		return 1
	}
	return n
}

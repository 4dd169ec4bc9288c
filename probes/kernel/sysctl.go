package kernel

import (
	"os"
	"strconv"
	"strings"
)

// ReadInt reads a file that holds a number; it returns 0 if it cannot.
func ReadInt(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}

// perfParanoid is the sysctl kernel.perf_event_paranoid.
func perfParanoid() int { return ReadInt(paranoidFile) }

const paranoidFile = "/proc/sys/kernel/perf_event_paranoid"

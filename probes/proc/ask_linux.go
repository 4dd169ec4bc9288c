package proc

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func threadID() int { return unix.Gettid() }

// asleep reports whether a thread of ours sleeps: it neither runs nor waits for a CPU.
func asleep(thread int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	if err != nil {
		return true
	}
	s, err := parseStat(string(stat))
	return err != nil || !strings.HasPrefix(s.State(), "R")
}

package proc

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func threadID() int { return unix.Gettid() }

// sleepOf returns whether a thread of a process of ours sleeps: it neither runs nor waits for a CPU.
func sleepOf(process string, thread int) sleep {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%d/status", process, thread))
	if err != nil {
		return sleep{asleep: true}
	}
	_, state, _ := bytes.Cut(status, []byte("\nState:\t"))
	_, switches, _ := bytes.Cut(status, []byte("\nvoluntary_ctxt_switches:\t"))
	switches, _, _ = bytes.Cut(switches, []byte("\n"))
	return sleep{!bytes.HasPrefix(state, []byte("R")), string(switches)}
}

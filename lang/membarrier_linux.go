package lang

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitForPrograms returns when all programs that ran have ended. membarrier(MEMBARRIER_CMD_GLOBAL) is the synchronize_rcu() that a
// process can call (kernel/sched/membarrier.c), and programs run as RCU readers. It is refused on machines with nohz_full CPUs:
// there it is left at a time that is long for a program.
func waitForPrograms() {
	const global = 1
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

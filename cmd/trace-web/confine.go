package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// confine keeps other processes of the same user from this one's memory and files: they may not trace it, nor open what is in its /proc/PID
// (prctl(2), PR_SET_DUMPABLE; ptrace(2)). It dumps no core.
func confine() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// nobody is the user without rights. Other programs run as it, too.
const nobody = 65534

// shared returns a warning, with what to do, if other processes may be of this one's user: they can still stop it. loader is the user of the loader.
func shared(user, loader int) string {
	who := ""
	switch user {
	case 0:
		who = "root, with rights that it does not need"
	case nobody:
		who = "nobody, as other programs may"
	case loader:
		who = fmt.Sprintf("user %d, as the loader does", user)
	default:
		return ""
	}
	return "trace-web runs as " + who + ": give it a user of its own: `useradd --system trace-web`, as which trace serve starts it if root starts trace serve, or User= of systemd, or runAsUser of Kubernetes"
}

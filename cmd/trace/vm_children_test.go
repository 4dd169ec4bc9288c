//go:build vm

package main

import (
	"fmt"
	"strings"
	"testing"
)

// The completion of a command is an event of the process that submitted it, whatever the interrupt met; and what a process leaves behind
// is destroyed when it has ended. So --children has the commands and the objects of the tree, and none of the same commands that another
// process submits at the same time.
func TestVMNvmeChildren(t *testing.T) {
	for _, probe := range []string{"nvme:setup_cmd", "nvme:complete_rq"} {
		program := probe + ` / opcode == read && comm == "dd" && bytes == 4KiB /`
		run := func(flags string) int {
			return strings.Count(sh(t, `rm -f /tmp/go /tmp/done && mkfifo /tmp/go /tmp/done
(read x < /tmp/go; dd if=/dev/nvme0n1 of=/dev/null bs=4k count=200 iflag=direct status=none; echo > /tmp/done) > /dev/null 2>&1 &
trace %s -q --strict -f json -c 'sh -c "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=30 iflag=direct status=none; echo > /tmp/go; (dd if=/dev/nvme0n1 of=/dev/null bs=4k count=12 iflag=direct status=none &); read x < /tmp/done; sleep 1"' '%s'`,
				flags, program), `"probe":"`+probe+`"`)
		}
		for flags, want := range map[string]int{"--children": 42, "": 242} {
			n := run(flags)
			// Where the kernel preempts tasks it may skip a command's submission; then the sender is unknown.
			if least := want - want/10; n != want && !(preempting() && n >= least && n < want) {
				t.Errorf("%s %s: %d commands, want %d", probe, flags, n, want)
			}
		}
	}
}

// The kernel closes the objects of a process when it dies, and that is part of what the process did.
func TestVMIbChildren(t *testing.T) {
	run := func(flags string) string {
		return sh(t, `rm -f /tmp/go /tmp/done && mkfifo /tmp/go /tmp/done
(read x < /tmp/go; ibv_rc_pingpong -d rxe0 -g 1 -p 18600 & sleep 3; kill -9 $!; wait; echo > /tmp/done) > /dev/null 2>&1 &
trace %s -q --strict -c 'sh -c "echo > /tmp/go; ibv_rc_pingpong -d rxe0 -g 1 -p 18601 > /dev/null & sleep 3; kill -9 $!; wait; read x < /tmp/done; sleep 1"' 'ib:create_qp { @created = count() } ib:destroy_qp { @destroyed = count() }'`,
			flags)
	}
	for flags, n := range map[string]int{"--children": 1, "": 2} {
		got := run(flags)
		for _, name := range []string{"created", "destroyed"} {
			if want := fmt.Sprintf("@%s: %d\n", name, n); !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %s", flags, got, want)
			}
		}
	}
}

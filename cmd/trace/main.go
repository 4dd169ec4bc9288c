// Trace shows RDMA and NVMe events of a Linux machine, filtered by expressions over their fields.
//
//	trace 'qp.state==RTR'
//	trace 'nvme:complete_rq / latency > 1ms /'
//
// Data goes to standard output, everything else to standard error. The exit status is 0, 1 if something failed, 2 if the
// command line or the program is wrong, and with --strict 3 if events were lost, 4 if the command of -c failed, 130 if
// it was interrupted before it had attached a probe, and n if the program calls exit(n).
package main

import (
	"context"
	"os"

	"trace/lang/run"
)

func main() {
	if run.BecomeCommand(os.Args) {
		os.Exit(exitFailed)
	}
	os.Exit(runCommand(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

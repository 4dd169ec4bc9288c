// Trace shows RDMA and NVMe events of a Linux machine, filtered by expressions over their fields.
//
//	trace 'qp.state==RTR'
//	trace 'nvme:complete_rq / latency > 1ms /'
//
// Data goes to standard output, everything else to standard error. The exit status is 0, 1 if something failed, 2 if the
// command line or the program is wrong, and 3 with --strict if events were lost.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

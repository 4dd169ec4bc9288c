//go:build linux

package probes

import (
	"context"
	"io"

	"github.com/cilium/ebpf"

	"trace/probes/kernel"
	"trace/probes/verbs"
)

// callerProgram is the program of users.bpf.c that keeps who calls a function.
const callerProgram = "uprobe_users_caller"

// A callerWatch attaches a program to functions that keeps who calls them, and nothing else.
type callerWatch struct {
	kernel  *kernel.Kernel
	objects *ebpf.Collection // nil before it is first attached
	callers callers
}

// Users returns the processes that have RDMA devices open, and notes about what could not be found out. It takes [verbs.Quiet] if a QP of one can
// send, and the process calls nothing.
func (h *Host) Users(ctx context.Context) (users []verbs.Process, notes []string, err error) {
	w := &callerWatch{kernel: h.kernel}
	defer func() {
		if w.objects != nil {
			w.objects.Close()
		}
	}()
	return verbs.Users(ctx, listQPs, w.attach, w.callers.read)
}

func (w *callerWatch) attach(path string, offset uint64, to verbs.Reach) (_ io.Closer, err error) {
	if w.objects == nil {
		if w.objects, err = loadUsers(w.kernel, callerProgram); err != nil {
			return nil, err
		}
		w.callers.add(w.objects.Maps[callersMap])
	}
	return attachUprobe(w.objects.Programs[callerProgram], callerProgram, false, path, offset, to)
}

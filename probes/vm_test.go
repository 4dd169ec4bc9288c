//go:build vm

package probes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

var full = flag.Bool("full", false, "attach every variant fifty times, and try every field of every probe alone")

// Every variant of every probe and helper that this host does not rule out loads and attaches, with all fields, again and again,
// and leaves nothing behind. The table is printed: VARIANT, probe, kernel, variant, yes or no and why.
func TestVMLoad(t *testing.T) {
	times := 2
	if *full {
		times = 50
	}
	if runtime.GOARCH == "arm64" {
		shell(t, "modprobe ib_uverbs") // nothing there makes an RDMA device
	}
	h := detect(t)
	for _, p := range h.catalog.Probes() {
		seen := make(map[string]bool)
		for i, v := range h.variants(p.Group, p.hook) {
			name := v.name
			// The second alternative of the functions has variants of the same names.
			if seen[name] {
				name += " (other functions)"
			}
			seen[name] = true
			answer, err := "yes", v.check()
			if err != nil {
				answer = "no: " + err.Error()
			}
			fmt.Printf("VARIANT\t%s\t%s\t%s\t%s\n", p, os.Getenv("VMTEST_KERNEL"), name, answer)
			if err != nil {
				continue
			}
			t.Run(p.String()+"/"+name, func(t *testing.T) {
				cycle(t, times, func() (*Session, error) { return attachOnly(h, p, i) })
			})
		}
	}
}

// attachOnly attaches one variant of a probe, and of the helpers that it needs those of the same name.
func attachOnly(h *Host, p *Probe, index int) (*Session, error) {
	s := &Session{host: h}
	r := &request{Request: Request{Probe: p, Fields: p.Fields}, record: newRecord(0, p.Fields), hooks: h.hooksFor(Request{Probe: p, Fields: p.Fields})}
	s.requests = append(s.requests, r)
	ring, err := s.openRing(AttachOptions{})
	if err != nil {
		return nil, err
	}
	l, err := s.newLoader(p.Group, s.requests, ring)
	if err != nil {
		return nil, err
	}
	r.counts = l.maps[p.event+"_counts"]
	want := h.variants(p.Group, p.hook)[index].name
	for _, hk := range r.hooks {
		for i, v := range h.variants(p.Group, hk) {
			if v.check() != nil || v.name != want || hk.name == p.hook.name && i != index {
				continue
			}
			if err := s.attachVariant(l, r, v); err != nil {
				s.Close()
				return nil, fmt.Errorf("%s: %w", hk.name, err)
			}
		}
	}
	return s, nil
}

// What is in the VM already, and what it takes to be there, the kernel says itself.
func TestVMNothingIsMissing(t *testing.T) {
	h := detect(t)
	for _, p := range h.catalog.Probes() {
		if s := h.Status(p); s.Variant == "" {
			t.Errorf("%s is not available: %s", p, s.Reason)
		}
	}
}

// Nothing but the workload uses the disk and the RDMA device, so each field can be captured quite alone. Those of one probe share
// their macros with those of the next, so two probes will do; -full does all.
func TestVMFieldsAlone(t *testing.T) {
	const (
		read     = "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=2 iflag=direct"
		pingpong = "taskset -c 0 ibv_rc_pingpong -d rxe0 -g 1 -n 5 & until taskset -c 1 ibv_rc_pingpong -d rxe0 -g 1 -n 5 10.9.0.1; do sleep 0.2; done; wait"
	)
	workloads := map[string]string{"nvme:complete_rq": read, "ib:modify_qp": pingpong}
	if *full {
		workloads = map[string]string{"nvme:[cs]*": read, "ib:*": pingpong}
	}
	h := detect(t)
	for glob, workload := range workloads {
		for _, p := range h.catalog.Match(glob) {
			t.Run(p.String(), func(t *testing.T) {
				compareAlone(t, h, p, nil, func(snapshot) bool { return true }, func() { shell(t, workload) })
			})
		}
	}
}

func shell(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.WaitDelay = time.Second // for what it leaves in the background
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

//go:build vm

package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestVMMoreNvmeReload unloads a driver and loads it again while trace has a kprobe in it: what happens then is seen again, and the user,
// and --strict, get to know the gap.
func TestVMMoreNvmeReload(t *testing.T) {
	tr := start(t, "--strict", "nvme:timeout / opcode == read /")
	rejected := start(t, "nvme:timeout / opcode == write /")
	sh(t, "n=$(ls /dev/nvme?n? | wc -l); modprobe -r nvme; modprobe nvme; until [ $(ls /dev/nvme?n? | wc -l) -ge $n ]; do sleep 0.1; done")
	note := regexp.MustCompile(`nvme:timeout: module nvme was loaded again: nvme_timeout not seen from \d\d:\d\d:\d\d\.\d{6} to \d\d:\d\d:\d\d\.\d{6}\n`)
	tr.waitToSay(t, "module nvme was loaded again")
	_, disk := slowDisk(t)
	calls := countCalls(t, "nvme_timeout")
	sh(t, "dd if=/dev/%s of=/dev/null bs=248k count=4 iflag=direct || true", disk)
	if err := tr.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := tr.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
		t.Errorf("%v, want status %d\n%s", err, exitLost, tr.messages(t))
	}
	if events, n := tr.decoded(t), calls(); int64(len(events)) != n || n == 0 {
		t.Errorf("%d timeouts, nvme_timeout was called %d times\n%s", len(events), n, tr.messages(t))
	}
	if !note.MatchString(tr.messages(t)) {
		t.Errorf("want %s in:\n%s", note, tr.messages(t))
	}
	if events := rejected.stop(t); len(events) != 0 || !regexp.MustCompile(`nvme:timeout: [1-9]\d* seen, 0 printed, [1-9]\d* rejected, 0 lost`).MatchString(rejected.messages(t)) {
		t.Errorf("%d writes:\n%s", len(events), rejected.messages(t))
	}
}

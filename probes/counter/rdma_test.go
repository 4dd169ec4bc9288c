//go:build linux

package counter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Counters of a device, of its ports and of both kinds; what is no number is left out, and a device that goes leaves no error.
func TestRDMA(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"mlx5_0/hw_counters/vhca_rx": "5\n", "mlx5_0/ports/1/hw_counters/rnr_nak": "7\n", "mlx5_0/ports/1/hw_counters/lifespan": "10\n",
		"mlx5_0/ports/1/counters/port_rcv_data": "18446744073709551615\n", "mlx5_0/ports/1/counters/VL15_dropped": "N/A (no PMA)\n", "mlx5_0/ports/2/state": "4: ACTIVE\n",
	} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (text string) {
		t.Helper()
		devices := map[uint64]bool{}
		if err := rdma(root).Read(func(s Set) {
			devices[s.Device] = true
			text += fmt.Sprint(s.Name, "/", s.Port, "/", rdmaKinds[s.Kind], s.Counters, " ", s.Err, "; ")
		}); err != nil || len(devices) > 1 {
			t.Fatal(devices, err)
		}
		return text
	}
	if got, want := read(), "mlx5_0/0/hw_counters[{vhca_rx 5}] <nil>; mlx5_0/1/hw_counters[{rnr_nak 7}] <nil>; mlx5_0/1/counters[{port_rcv_data 18446744073709551615}] <nil>; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := os.RemoveAll(filepath.Join(root, "mlx5_0/ports")); err != nil {
		t.Fatal(err)
	}
	if got, want := read(), "mlx5_0/0/hw_counters[{vhca_rx 5}] <nil>; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// What cannot be read, although it is there, is an error of its set.
	bad := filepath.Join(root, "mlx5_0/hw_counters/bad")
	if err := os.Mkdir(bad, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := read(); !strings.Contains(got, "[] read "+bad+": is a directory") {
		t.Error(got)
	}
	if err := rdma(filepath.Join(root, "none")).Read(func(Set) {}); err != nil {
		t.Error(err)
	}
}

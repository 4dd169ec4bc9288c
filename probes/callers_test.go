//go:build linux

package probes

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// Who calls something is in the maps of all batches. Of a full one nobody knows who else did.
func TestCallers(t *testing.T) {
	detect(t)
	var c callers
	maps := make([]*ebpf.Map, 2)
	for i := range maps {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: 3})
		if err != nil {
			t.Skip(err)
		}
		defer m.Close()
		maps[i] = m
		defer c.add(m).Close()
	}
	c.add(nil)
	me := uint32(os.Getpid())
	put := func(m *ebpf.Map, caller uint32) {
		if err := m.Put(caller, uint8(1)); err != nil {
			t.Fatal(err)
		}
	}
	put(maps[0], me)
	put(maps[1], me+1)
	put(maps[1], me+2)
	got, err := c.read()
	if err != nil || len(got) != 3 || !got[int(me)] || !got[int(me)+1] || !got[int(me)+2] {
		t.Errorf("%+v, %v", got, err)
	}
	put(maps[1], me+3)
	if _, err := c.read(); err == nil || err.Error() != "too many processes call the functions that are followed" {
		t.Errorf("of a full map: %v", err)
	}
}

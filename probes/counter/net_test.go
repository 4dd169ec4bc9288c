//go:build linux

package counter

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// What is read of each device lies between what its files show before and after.
func TestNetwork(t *testing.T) {
	source, err := Network()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	before := files(t)
	sets := 0
	err = source.Read(func(s Set) {
		if s.Kind != deviceKind || s.Err != nil {
			return
		}
		sets++
		for _, c := range s.Counters {
			path := "/sys/class/net/" + s.Name + "/statistics/" + c.Name
			if c.Name == "rx_otherhost_dropped" { // it has no file
				continue
			}
			if after := fileOf(t, path); c.Value < before[path] || c.Value > after {
				t.Errorf("%s: %d, the file has %d and then %d", path, c.Value, before[path], after)
			}
			delete(before, path)
		}
	})
	if err != nil || sets == 0 || len(before) > 0 {
		t.Errorf("%d devices, not read: %v: %v", sets, before, err)
	}
}

func files(t *testing.T) map[string]uint64 {
	t.Helper()
	all := make(map[string]uint64)
	out, err := exec.Command("sh", "-c", "ls /sys/class/net/*/statistics/*").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		all[path] = fileOf(t, path)
	}
	return all
}

func fileOf(t *testing.T, path string) uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Counters are compared by their names: a driver may have others than before.
func TestSince(t *testing.T) {
	before := Set{Counters: []Counter{{"a", 1}, {"b", 2}, {"c", 9}}}
	for _, test := range []struct{ now, want string }{
		{"a=1 b=2 c=9", ""},
		{"a=4 b=2 c=3", "a=4 from 1 c=3 from 9"},
		{"c=9 new=5 b=3", "b=3 from 2"},
		{"", ""},
	} {
		var now Set
		for word := range strings.FieldsSeq(test.now) {
			name, value, _ := strings.Cut(word, "=")
			n, _ := strconv.ParseUint(value, 10, 64)
			now.Counters = append(now.Counters, Counter{name, n})
		}
		var got []string
		for _, c := range now.Since(before) {
			got = append(got, c.Name+"="+strconv.FormatUint(c.Value, 10)+" from "+strconv.FormatUint(c.Before, 10))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", test.now, got, test.want)
		}
	}
}

// What a driver has: names of 32 bytes, which may have no NUL, and values.
func TestDriverCounters(t *testing.T) {
	long := strings.Repeat("x", nameLength)
	names, values := make([]byte, 12), make([]byte, 8)
	binary.NativeEndian.PutUint32(names[8:], 2)
	binary.NativeEndian.PutUint32(values[4:], 2)
	names = append(append(names, "    rx_pause"...), make([]byte, nameLength-12)...)
	names = append(names, long...)
	values = binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(values, 7), 1<<40)
	got, err := countersOf(2, names, values)
	if want := []Counter{{"rx_pause", 7}, {long, 1 << 40}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %v", got, err)
	}
	if _, err := countersOf(3, names, values); err == nil || err.Error() != "the driver has changed its counters meanwhile" {
		t.Error(err)
	}
}

func TestNetworkErrors(t *testing.T) {
	source, err := Network()
	if err != nil {
		t.Fatal(err)
	}
	n := source.(*network)
	if counters, err := n.driver.read("nowhere0"); counters != nil || err != nil {
		t.Errorf("no device: %v, %v", counters, err)
	}
	if err := n.driver.ask("nowhere0", getSetInfo, make([]byte, 24)); err == nil || err.Error() != "ethtool of nowhere0: no such device" || !errors.Is(err, unix.ENODEV) {
		t.Error(err)
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	if err := source.Read(func(Set) {}); err == nil || !strings.HasPrefix(err.Error(), "list the network devices: ") {
		t.Error(err)
	}
	if _, err := deviceSet(make([]byte, 3)); err == nil || err.Error() != "a device of 3 bytes" {
		t.Error(err)
	}
	tries := 0
	_, err = whole(func() ([]netlink.Message, error) {
		tries++
		return []netlink.Message{{}, {Header: netlink.Header{Flags: netlink.Multi | netlink.DumpInterrupted}}}, nil
	})
	if err == nil || err.Error() != "the list changes all the time" || tries != 5 {
		t.Errorf("%d tries: %v", tries, err)
	}
}

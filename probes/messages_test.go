//go:build linux

package probes

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/filetest"
)

func checkMessage(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A kernel may refuse to list RDMA objects, or list what cannot be read.
func TestMessagesOfRDMA(t *testing.T) {
	checkMessage(t, filetest.With(t, 0, func() error { _, _, err := dialRDMA(context.Background()); return err }), "RDMA netlink: ")
	refuses := nltest.Dial(func([]netlink.Message) ([]netlink.Message, error) { return nil, unix.EPERM })
	_, err := rdmaNamespaces(refuses)
	checkMessage(t, err, "rdma system: ")
	_, err = rdmaDevices(refuses)
	checkMessage(t, err, "rdma res: ")
	answers := func(data []byte) *netlink.Conn {
		return nltest.Dial(func(asked []netlink.Message) ([]netlink.Message, error) {
			if len(asked) == 0 {
				return nil, nil
			}
			reply := netlink.Message{Header: asked[0].Header, Data: data}
			reply.Header.Flags = 0
			return []netlink.Message{reply}, nil
		})
	}
	_, err = rdmaNamespaces(answers([]byte{1, 2}))
	checkMessage(t, err, "rdma system: ")
	_, err = rdmaDevices(answers([]byte{1, 2}))
	checkMessage(t, err, "rdma res: ")
	d := rdmaDevice{name: "mlx5_0"}
	checkMessage(t, d.walk(answers([]byte{1, 2}), func() (uint32, error) { return 0, nil }, &walked{whole: map[class]bool{}}), "rdma res show pd of mlx5_0: ")
}

// newMap returns a map of the kernel. Without privileges the test is skipped.
func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	requirePermitted(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// Maps that are gone, and limits on files, are reported with what was tried.
func TestMessagesOfMaps(t *testing.T) {
	members := newMap(t, &ebpf.MapSpec{Name: "members", Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 1})
	_, err := (&inventory{known: members}).notMet()
	checkMessage(t, err, "known objects have no walk numbers")
	known := newMap(t, &ebpf.MapSpec{Name: "known", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	if err := known.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = (&inventory{known: known}).notMet()
	checkMessage(t, err, "known objects: ")
	if err := members.Close(); err != nil {
		t.Fatal(err)
	}
	closed := &set{members: members}
	checkMessage(t, family{closed}.add([]int{1}, false), "map memory of "+MembersName+": ")
	h := detect(t)
	if _, err := h.catalog.cgroups.Hierarchy(); err == nil {
		checkMessage(t, closed.addBelow(h, "/", func(uint64) answer { return answer{} }), "note a cgroup: ")
	}
	for more, want := range []string{"ring buffer of 4096 bytes: ", "ring buffer: "} {
		checkMessage(t, filetest.With(t, uint64(more), func() error { _, err := openRing(4096, false); return err }), want)
	}
}

// A ring buffer that is closed meanwhile ends reading with an error.
func TestClosedRing(t *testing.T) {
	buffer := newMap(t, &ebpf.MapSpec{Name: RingName, Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	reader, err := ringbuf.NewReader(buffer)
	if err != nil {
		t.Fatal(err)
	}
	r := &ring{buffer: buffer, reader: reader}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	checkMessage(t, r.keepEarly()(), "ring buffer: ")
	s := &Session{ring: r, detached: true}
	checkMessage(t, s.Read(t.Context(), func(*event.Event) error { return nil }), "ring buffer: ")
}

// What a session cannot follow is named.
func TestMessagesOfFollowing(t *testing.T) {
	h := detect(t)
	exit := h.catalog.Match("syscall:exit")[0]
	attach(t, h, Request{Probe: exit, Code: rejectAll()}) // skips without privileges
	_, err := Attach(t.Context(), h, nil, AttachOptions{Roots: []int{-1}})
	checkMessage(t, err, "follow the children: -1 is not a process id")
	nowhere := filepath.Join("/", "no", "such", "cgroup")
	_, err = Attach(t.Context(), h, nil, AttachOptions{Cgroup: nowhere})
	checkMessage(t, err, "follow the cgroups below "+nowhere+": ")
}

// A kernel whose types or functions are others is reported.
func TestMessagesOfOtherKernels(t *testing.T) {
	h := hostOf(t, "none")
	checkMessage(t, h.TasksDescribed(), "struct task_struct: ")
	hook := &hostHook{Kernel: h.kernel, object: &object{}}
	checkMessage(t, checkFunctions(hook, []kernelFunc{{name: "no_such_one"}, {name: "nor_this", optional: true}}), "this kernel has no function no_such_one")
}

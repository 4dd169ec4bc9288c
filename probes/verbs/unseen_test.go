//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// mapFile makes a file, and maps it.
func mapFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mapped) })
}

// A process is named by the library that it maps, some only with another one.
func TestWriterOf(t *testing.T) {
	for _, test := range []struct {
		libraries []string
		file      string
	}{
		{[]string{"/opt/ucx/lib/ucx/libuct_ib_mlx5.so.0.0.0", "/usr/lib/libmlx5.so.1"}, "libuct_ib_mlx5.so.0.0.0"},
		{[]string{"/usr/lib/ucx/libuct_ib.so.0", "/usr/lib/libmlx5.so.1.24"}, "libuct_ib.so.0"},
		{[]string{"/usr/lib/ucx/libuct_ib.so.0"}, ""},
		{[]string{"/usr/lib/libmlx5.so.1.24", "/usr/lib/libucs.so.0"}, ""},
		{[]string{"/usr/lib/librte_net_mlx5.so.24.0"}, "librte_net_mlx5.so.24.0"},
	} {
		var regions []proc.Mapping
		for _, path := range test.libraries {
			regions = append(regions, proc.Mapping{Path: path})
		}
		if _, file, ok := writerOf(regions); file != test.file || ok != (file != "") {
			t.Errorf("%v: %q, want %q", test.libraries, file, test.file)
		}
	}
}

// Who may write queues itself is named once, at the start and later.
func TestNameWriters(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libuct_ib_mlx5.so.0")
	mapFile(t, library)
	function := uint64(reflect.ValueOf(TestNameWriters).Pointer())
	memory := newContext(device(t), function)
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	f.QPs = func() ([]QP, error) { return []QP{{PID: os.Getpid(), Number: 17}}, errors.New("no netlink") }
	lookAll(t, f)
	if want := []string{"verbs: which QPs can send from before is unknown: no netlink"}; !slices.Equal(notes, want) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	notes = nil
	f.QPs = func() ([]QP, error) { return []QP{{PID: os.Getpid(), Number: 17, CanSend: true}}, nil }
	f.nameWriters()
	f.canSend(targetOf(t, f, os.Getpid()), 17)
	want := fmt.Sprintf("verbs: process %d (%s) maps libuct_ib_mlx5.so.0: UCX writes the queues of rc_x, dc_x and ud_x itself (rc_v and ud_v are seen), which verbs: does not see; "+
		"ib: and mlx5:cmd still show its control path", os.Getpid(), commOf(os.Getpid()))
	if !slices.Equal(notes, []string{want}) {
		t.Errorf("it reports %q, want %q", notes, want)
	}
	clear(memory)
}

// A process that calls nothing is named where its calls would be seen.
func TestPosts(t *testing.T) {
	function := uint64(reflect.ValueOf(TestPosts).Pointer())
	for _, test := range []struct {
		calls   []string
		among   func(int) bool
		late    bool
		callers map[int]bool
		err     error
		want    string // the calls, or an error
	}{
		{calls: []string{"post_send", "post_recv"}, want: "post_recv, post_send"},
		{calls: []string{"post_send", "post_recv"}, among: func(pid int) bool { return pid == os.Getpid() }, want: "post_recv, post_send"},
		{calls: []string{"post_send", "post_recv"}, among: func(int) bool { return false }},
		{calls: []string{"post_send", "poll_cq"}, want: "poll_cq, post_send"},
		{calls: []string{"post_send"}},
		{calls: []string{"post_recv", "poll_cq"}},
		{calls: []string{"post_send", "post_recv"}, late: true},
		{calls: []string{"post_send", "post_recv"}, callers: map[int]bool{os.Getpid(): true}},
		{calls: []string{"post_send", "post_recv"}, callers: map[int]bool{1: true}, want: "post_recv, post_send"},
		{calls: []string{"post_send", "post_recv"}, err: errors.New("full"), want: "full"},
	} {
		t.Run(fmt.Sprintf("%v %v %v", test.calls, test.callers, test.late), func(t *testing.T) {
			memory := newContext(device(t), function)
			var notes, want []string
			f := newFinder(func(text string) { notes = append(notes, text) })
			f.Callers = func() (map[int]bool, error) { return test.callers, test.err }
			a := &attachments{open: make(map[string]int)}
			for _, call := range test.calls {
				if _, err := f.Follow(call, test.among, a.attach); err != nil {
					t.Fatal(err)
				}
			}
			if !test.late {
				lookAll(t, f)
			}
			self := targetOf(t, f, os.Getpid())
			if check := f.canSend(self, 17); check == test.late {
				t.Errorf("it is looked at later: %v", check)
			}
			f.canSend(self, 18) // the first counts
			f.posts(self)
			switch {
			case test.err != nil:
				want = []string{"verbs: which processes post nothing is unknown: full"}
			case test.want != "":
				want = []string{fmt.Sprintf("verbs: process %d (%s) called none of %s in the 10 s since its QP 17 could send: it is only the target of RDMA, or waits, "+
					"or writes the device's queues itself, which verbs: does not see; ib: and mlx5:cmd still show its control path", os.Getpid(), commOf(os.Getpid()), test.want)}
			}
			if !slices.Equal(notes, want) {
				t.Errorf("it reports %q, want %q", notes, want)
			}
			clear(memory)
		})
	}
}

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// anyProvider returns a provider's library, of whichever release.
func anyProvider(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "trace-libibverbs/*/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so"))
	if len(found) == 0 {
		t.Skip(".ci/setup libibverbs has not been run")
	}
	return found[0]
}

// mapCode maps a file like a library, and returns where its beginning is.
func mapCode(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	code, err := unix.Mmap(int(f.Fd()), 0, int(stat.Size()), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(code) })
	return uint64(uintptr(unsafe.Pointer(&code[0])))
}

// copyOf copies a file, and gives it to a user.
func copyOf(t *testing.T, path string, owner int, mode os.FileMode) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "libcopy-rdmav34.so")
	if err := errors.Join(os.WriteFile(to, data, mode), os.Chmod(to, mode), os.Chown(to, owner, owner)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A uprobe may be put where a function of a provider begins, and nowhere else; into other processes only if the file is root's.
func TestProve(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	library := anyProvider(t)
	functions, err := openImage(t, library).functions()
	if err != nil || len(functions) < 10 {
		t.Fatalf("%d functions, %v", len(functions), err)
	}
	begin := functions[len(functions)/2]
	root := mapCode(t, copyOf(t, library, 0, 0o644))
	users := mapCode(t, copyOf(t, library, 1000, 0o644))
	writable := mapCode(t, copyOf(t, library, 0, 0o664))
	libverbs := filepath.Join(filepath.Dir(filepath.Dir(library)), "libibverbs.so.1")
	looks := mapCode(t, copyOf(t, libverbs, 0, 0o644))
	var data [8]byte
	p := &prover{judge: proven, trusts: trusts}
	t.Cleanup(func() { p.close() })
	self := targetOf(t, newFinder(nil), os.Getpid())
	self.alone = false
	private := strings.HasPrefix(t.TempDir(), "/") && nosuid(t, t.TempDir())
	m, err := proc.ReadMounts(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all := m.First && !private
	for _, test := range []struct {
		name    string
		address uint64
		shared  bool
		reason  string
	}{
		{"root's", root + begin, all, ""},
		{"a user's", users + begin, false, ""},
		{"root's, which a group can write", writable + begin, false, ""},
		{"behind the beginning", root + begin + 1, false, inside},
		{"in the head of the file", root, false, inside},
		{"libibverbs", looks + begin, false, unproven},
		{"this program", uint64(reflect.ValueOf(TestProve).Pointer()), false, unproven},
		{"data", uint64(uintptr(unsafe.Pointer(&data))), false, outside},
		{"nothing", 8, false, outside},
	} {
		got, err := p.prove(self, test.address)
		var r *refusal
		if errors.As(err, &r) != (test.reason != "") || r != nil && r.reason != test.reason || err == nil && got.shared != test.shared {
			t.Errorf("%s: %+v, %v; want reason %q, shared %v", test.name, got, err, test.reason, test.shared)
		}
	}
	if len(p.libraries) != 3 {
		t.Errorf("%d libraries are known, want those that were proven", len(p.libraries))
	}
}

// A file that several processes use is proven by way of each at the same time, and is one library: its calls are counted once.
func TestProveAtOnce(t *testing.T) {
	path := anyProvider(t)
	functions, err := openImage(t, path).functions()
	if err != nil {
		t.Fatal(err)
	}
	address := mapCode(t, path) + functions[0]
	const processes = 3
	var all sync.WaitGroup
	all.Add(processes)
	p := &prover{trusts: trusts, judge: func(r io.ReaderAt) (func(uint64) bool, string, error) {
		all.Done()
		all.Wait()
		return proven(r)
	}}
	t.Cleanup(func() { p.close() })
	var got [processes]place
	if err := sideBySide(processes, func(i int) (err error) {
		got[i], err = p.prove(targetOf(t, newFinder(nil), os.Getpid()), address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(p.libraries) != 1 || got[1].function != got[0].function || got[2].function != got[0].function {
		t.Errorf("%d libraries, functions %v, %v, %v", len(p.libraries), got[0].function, got[1].function, got[2].function)
	}
}

func nosuid(t *testing.T, path string) bool {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		t.Fatal(err)
	}
	return fs.Flags&unix.ST_NOSUID != 0
}

// Whose a file is depends on its owner, its bits, its mount, and whose mount namespace that is in.
func TestRoots(t *testing.T) {
	for _, test := range []struct {
		owner, mode uint32
		flags       int64
		first       bool
		want        bool
	}{
		{0, 0o755, 0, true, true},
		{0, 0o444, unix.ST_RDONLY, true, true},
		{1000, 0o755, 0, true, false},
		{0, 0o775, 0, true, false},
		{0, 0o757, 0, true, false},
		{0, 0o755, unix.ST_NOSUID, true, false},
		{0, 0o755, 0, false, false},
	} {
		open := begun{stat: unix.Stat_t{Uid: test.owner, Mode: unix.S_IFREG | test.mode}, fs: unix.Statfs_t{Flags: test.flags}, first: test.first}
		if got := roots(open); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A mount namespace of a user is not believed, nor is a process there to speak for its user.
func TestUserNamespace(t *testing.T) {
	if m, err := proc.ReadMounts(os.Getpid()); err != nil || !m.First {
		t.Skip("this test runs in another user namespace than the first one")
	}
	child := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sleep", "1000")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Skip(err)
	}
	defer func() { child.Process.Kill(); child.Wait(); out.Close() }()
	var p party
	for range 200 { // until it has unshared
		if p, err = partyOf(child.Process.Pid); err != nil || p.alone {
			break
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 10e6}, nil)
	}
	if err != nil || !p.alone {
		t.Skipf("no user namespace can be made here: %v", err)
	}
	if self, err := partyOf(os.Getpid()); err != nil || self.alone || self.payer != self.user || self.user != uint32(os.Getuid()) {
		t.Errorf("this process is %+v, %v", self, err)
	}
	if m, err := proc.ReadMounts(child.Process.Pid); err != nil || m.First {
		t.Error("its mounts belong to the first user namespace")
	}
}

// Whoever made a user namespace pays for all of its users: with ids of subuid(5) one user is many.
func TestMakerPays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("processes of other users need root")
	}
	const maker, other = 1000, 100_005
	child := exec.Command("unshare", "--user", "sh", "-c", "echo; read _; exec setpriv --reuid=1 --clear-groups unshare --user sleep 1000")
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: maker, Gid: maker}}
	in, err := child.StdinPipe()
	out, wrong := child.StdoutPipe()
	if err := errors.Join(err, wrong, child.Start()); err != nil {
		t.Skip(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	if n, err := out.Read(make([]byte, 1)); n == 0 {
		t.Skipf("no user namespace can be made here: %v", err)
	}
	for _, file := range []string{"uid_map", "gid_map"} { // as newuidmap(1) does
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", child.Process.Pid, file), fmt.Appendf(nil, "0 1000 1\n1 %d 1\n", other), 0); err != nil {
			t.Skip(err)
		}
	}
	in.Close()
	var p party
	for range 200 { // until it is another user
		if p, err = partyOf(child.Process.Pid); err != nil || p.user == other {
			break
		}
		unix.Nanosleep(&unix.Timespec{Nsec: 10e6}, nil)
	}
	if err != nil || p != (party{user: other, alone: true, payer: maker}) {
		t.Errorf("%+v, %v", p, err)
	}
}

// What one user names is followed in that user's processes, what root or a second one names in all. A file of a user's is followed in the process alone.
func TestNames(t *testing.T) {
	l := &library{file: os.Stdin}
	shared, own := place{function{l, 0x100}, "/shared", "lib.so", true}, place{function{l, 0x200}, "/own", "lib.so", false}
	for name, test := range map[string]struct {
		users []uint32
		want  []string
	}{
		"root":                 {[]uint32{0}, []string{"0 shared+100"}},
		"a user, twice":        {[]uint32{1000, 1000}, []string{"0 shared+100 of the user 1000"}},
		"two users":            {[]uint32{1000, 1001, 1002}, []string{"0 shared+100 of not the user 1000", "0 shared+100 of the user 1000"}},
		"a user and then root": {[]uint32{1000, 0}, []string{"0 shared+100 of not the user 1000", "0 shared+100 of the user 1000"}},
		"root and then a user": {[]uint32{0, 1000}, []string{"0 shared+100"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFinder(func(text string) { t.Error(text) })
			a := &attachments{open: make(map[string]int)}
			w, err := f.Follow("post_send", nil, a.attach)
			if err != nil {
				t.Fatal(err)
			}
			self := targetOf(t, f, os.Getpid())
			for i, user := range test.users {
				self.user = user
				p := shared
				p.path = "/proc/self/fd/shared"
				if _, err := f.name("post_send", p, user); err != nil {
					t.Fatalf("name %d: %v", i, err)
				}
			}
			if got := a.now(); !slices.Equal(got, test.want) {
				t.Errorf("attached: %q, want %q", got, test.want)
			}
			late, err := f.Follow("post_send", nil, a.attach)
			want := "0 shared+100" // all at the same time
			if name == "a user, twice" {
				want = test.want[0]
			}
			if err != nil || a.number() != len(test.want)+1 || a.open[want] == 0 {
				t.Errorf("a late follower: %v, %v", a.open, err)
			}
			if err := errors.Join(w.Close(), late.Close()); err != nil || len(a.now()) != 0 {
				t.Errorf("at the end %q is attached: %v", a.now(), err)
			}
		})
	}

	f := newFinder(func(text string) { t.Error(text) })
	a := &attachments{open: make(map[string]int)}
	w, err := f.Follow("post_send", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	self := targetOf(t, f, os.Getpid())
	if !f.addAll(self, "", map[string]place{"post_send": own}) || !slices.Equal(a.now(), []string{fmt.Sprintf("%d own+200", os.Getpid())}) {
		t.Errorf("a user's file: %q", a.now())
	}
	// The same inode by a mount that is believed: then others follow it, and this process needs nothing of its own.
	own.shared = true
	if !f.addAll(self, "", map[string]place{"post_send": own}) || !slices.Equal(a.now(), []string{"0 own+200"}) {
		t.Errorf("root's file: %q", a.now())
	}
	self.user++ // it is no longer the party whose memory was read
	if f.addAll(self, "", map[string]place{"post_send": shared}) || !slices.Equal(a.now(), []string{"0 own+200"}) {
		t.Errorf("another party: %q", a.now())
	}
	if err := w.Close(); err != nil || len(a.now()) != 0 {
		t.Errorf("at the end %q is attached: %v", a.now(), err)
	}
}

// now is what is attached.
func (a *attachments) now() (all []string) {
	for at, n := range a.open {
		if n > 0 {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return all
}

// A user has a few libraries, whatever there are; those that no process uses are let go.
func TestLibrariesAreBounded(t *testing.T) {
	used := make(map[*library]bool)
	p := &prover{used: func() map[*library]bool { return used }}
	t.Cleanup(func() { p.close() })
	add := func(user uint32) *library {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		l := &library{file: f, user: user}
		p.libraries = append(p.libraries, l)
		return l
	}
	for range mostOfUser {
		if err := p.room(1000); err != nil {
			t.Fatal(err)
		}
		used[add(1000)] = true
	}
	if err := p.room(1000); err == nil || err.Error() != "too many libraries of user 1000 are followed" || p.room(1001) != nil || p.room(0) != nil {
		t.Errorf("one more: %v, %v, %v", err, p.room(1001), p.room(0))
	}
	delete(used, p.libraries[0])
	if err := p.room(1000); err != nil || len(p.libraries) != mostOfUser-1 {
		t.Errorf("after one has ended: %v, %d libraries", err, len(p.libraries))
	}
}

// Because of one user so many uprobes are attached, whatever is named, and others do not feel it.
func TestAttachmentsAreBounded(t *testing.T) {
	var notes []string
	f := newFinder(func(text string) { notes = append(notes, text) })
	a := &attachments{open: make(map[string]int)}
	w, err := f.Follow("post_send", nil, a.attach)
	if err != nil {
		t.Fatal(err)
	}
	l := &library{file: os.Stdin}
	self := targetOf(t, f, os.Getpid())
	for i := range uint64(mostAttached + 10) {
		f.mu.Lock()
		_, err := f.name("post_send", place{function{l, i}, "/shared", "lib.so", true}, 1000)
		f.mu.Unlock()
		if (err != nil) != (i >= mostAttached) {
			t.Fatalf("function %d: %v", i, err)
		}
	}
	if n := a.number(); n != mostAttached {
		t.Errorf("%d are attached, want %d", n, mostAttached)
	}
	for _, user := range []uint32{1001, 0} {
		if _, err := f.name("post_send", place{function{l, 1<<20 + uint64(user)}, "/shared", "lib.so", true}, user); err != nil {
			t.Errorf("user %d: %v", user, err)
		}
	}
	self.payer = 1000
	f.use(self).places["post_send"] = []place{{function{l, 1 << 30}, "/own", "lib.so", false}}
	if f.serve(self.process, make(map[string]bool)) || len(notes) != 1 || !strings.Contains(notes[0], " uprobes, and may not have more") {
		t.Errorf("one more for a process: %q", notes)
	}
	if err := w.Close(); err != nil || a.number() != 0 {
		t.Errorf("%d are left: %v", a.number(), err)
	}
}

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// A function is where a function is, under whatever path.
type function struct {
	library *library
	offset  uint64
}

// A place is a function in a file of a process.
type place struct {
	function
	path string // by which it can be opened until the finder lets go of the file
	name string // of the library, in the process
	// shared means that the file is root's: other processes may rely on what it is.
	shared bool
}

// A library is a file that was proven to be the library of a provider. It is open, so its inode is no other file's.
type library struct {
	file    *os.File
	dev     uint64
	inode   uint64
	overlay bool
	user    uint32 // who owns the inode
	buildID string
	begins  func(offset uint64) bool
}

// prove returns the function at an address that a process names, if a uprobe may be put there. Contexts, QPs and CQs are in memory that the process
// controls, and anyone may open a device (/dev/infiniband/uverbs* is 0666), so nothing that they say is believed:
//
//   - The address must be in an executable mapping of a file. A uprobe is a breakpoint in an inode, so a file that some other program executes, too, must
//     be one in which nobody minds it.
//   - That file must be a provider: a shared library that needs libibverbs' private symbols. So libc, libibverbs, a program of root's, and the program's
//     own functions are none.
//   - A function must begin there that is called, by .eh_frame. A breakpoint inside of an instruction changes what the program computes, and a probe at the
//     return of a part that is jumped to replaces what the program keeps on its stack ([entryKind.called]). A trap behind an endbr64 at which the function
//     begins is at an instruction, too.
//   - Only a file that nobody but root can write keeps what was proven of it, so only there a breakpoint is put into other processes ([roots]).
//     In any other file it is put into the memory of this process alone, who can write to it anyway.
//   - The process may still name another function of a provider than it calls. So a function is followed in processes of the user who named it, and in
//     all only when root or a second user has named it ([Finder.name]).
func (p *prover) prove(t *target, address uint64) (place, error) {
	r, ok := t.region(address)
	if !ok || r.Inode == 0 || !r.Executable() {
		return place{}, &refusal{outside, fmt.Sprintf("is %#x, which is in no executable mapping of a file", address)}
	}
	of, known := t.opened[r.Start]
	if !known {
		of = p.provider(t, r)
		t.opened[r.Start] = of
	}
	if of.err != nil {
		return place{}, of.err
	}
	offset := address - r.Start + r.Offset
	if !of.library.begins(offset) {
		return place{}, &refusal{inside, fmt.Sprintf("is %s+%#x, where no function begins", r.Path, offset)}
	}
	if marked(askedFile{t, of.library.file}, offset) {
		offset += endbr64
	}
	return place{function{of.library, offset}, fmt.Sprintf("/proc/self/fd/%d", of.library.file.Fd()), r.Path, of.shared}, nil
}

// A provider is what was found out about the file of a mapping.
type provider struct {
	library *library
	shared  bool
	err     error // why it is no provider, or why that is unknown
}

// begun is an opened file, and what the kernel reports of it.
type begun struct {
	*os.File
	stat unix.Stat_t
	fs   unix.Statfs_t
	// first means that it was opened in a mount namespace that belongs to the first user namespace.
	first bool
}

// provider opens the file of a mapping, and proves that it is the library of a provider.
func (p *prover) provider(t *target, r proc.Mapping) provider {
	open, err := askFile(t, 16*lookCost, func() (begun, error) { return begin(t.pid, r) })
	if err != nil {
		return notProven(r.Path, err)
	}
	l, err := p.library(t, open)
	if err != nil {
		return notProven(r.Path, err)
	}
	return provider{library: l, shared: p.trusts(open, t.party)}
}

// begin opens the file of a mapping. Another file may be mapped there by now, so nothing is asked of it before its file system is known, and that is the one
// of the file that was looked up: it is opened again through itself. What is proven later is proven of this file.
func begin(pid int, r proc.Mapping) (b begun, err error) {
	fd, name, err := proc.LookUpMapped(pid, r.Start, r.End)
	if err != nil {
		return b, err
	}
	defer unix.Close(fd)
	m, err := proc.ReadMounts(pid) // now that it is looked up
	if err != nil {
		return b, err
	}
	if err := opens(m, unix.Mkdev(r.Major, r.Minor), fd); err != nil {
		return b, err
	}
	if b.File, err = proc.Reopen(fd, name); err != nil {
		return b, err
	}
	if err := errors.Join(unix.Fstat(int(b.Fd()), &b.stat), unix.Fstatfs(int(b.Fd()), &b.fs)); err != nil {
		return b, errors.Join(err, b.Close())
	}
	b.first = m.First
	return b, nil
}

// notProven is a file that is not followed: whatever is not proven is not remembered either.
func notProven(path string, err error) provider {
	if errors.As(err, new(*refusal)) || errors.Is(err, errStopped) {
		return provider{err: err}
	}
	// A mapping that is no longer there may be another one in a moment, and then the process is looked at again.
	return provider{err: &refusal{unproven, fmt.Sprintf("is in %s: %v", path, err)}}
}

// The number of libraries that are open, of users together and of each, and of root's. GPU clusters have a few.
const (
	mostOfUser  = 16
	mostOfUsers = 256
	mostOfRoot  = 256
)

// A prover knows the libraries that were proven.
type prover struct {
	judge  func(io.ReaderAt) (begins func(offset uint64) bool, buildID string, err error)
	trusts func(begun, party) bool
	// used returns the libraries that cannot be let go.
	used func() map[*library]bool

	mu        sync.Mutex
	libraries []*library
}

// library returns the library of an open file, which it closes or keeps.
func (p *prover) library(t *target, open begun) (*library, error) {
	if l := p.known(open); l != nil {
		return l, open.Close()
	}
	err := errors.Join(p.room(open.stat.Uid), sizes(open))
	if err != nil {
		return nil, errors.Join(err, open.Close())
	}
	l := &library{file: open.File, dev: open.stat.Dev, inode: open.stat.Ino, overlay: open.fs.Type == unix.OVERLAYFS_SUPER_MAGIC, user: open.stat.Uid}
	if l.begins, l.buildID, err = p.judge(askedFile{t, open.File}); err != nil {
		return nil, errors.Join(err, open.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// While this process was read, the same file may have been proven by way of another one. None waits for another one's proof: it may be slow.
	if other := p.knownLocked(open); other != nil {
		return other, open.Close()
	}
	p.libraries = append(p.libraries, l)
	return l, nil
}

// known returns the library that an open file is, nil if it was not proven yet.
func (p *prover) known(open begun) *library {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knownLocked(open)
}

func (p *prover) knownLocked(open begun) *library {
	i := slices.IndexFunc(p.libraries, func(l *library) bool { return l.is(open) })
	if i < 0 {
		return nil
	}
	return p.libraries[i]
}

// close lets go of all libraries.
func (p *prover) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.libraries {
		errs = append(errs, l.file.Close())
	}
	p.libraries = nil
	return errors.Join(errs...)
}

func sizes(open begun) error {
	if open.stat.Mode&unix.S_IFMT != unix.S_IFREG || open.stat.Size > 1<<30 {
		return errNotELF
	}
	return nil
}

// is reports whether an open file is the library. Containers from one image have overlays of their own over one file, where a uprobe sees all of them:
// there the device is another one, and the times tell. Nobody can set the time of the last change of an inode.
func (l *library) is(open begun) bool {
	if l.dev == open.stat.Dev {
		return l.inode == open.stat.Ino
	}
	overlay := open.fs.Type == unix.OVERLAYFS_SUPER_MAGIC
	var now unix.Stat_t
	if l.inode != open.stat.Ino || !l.overlay && !overlay || unix.Fstat(int(l.file.Fd()), &now) != nil {
		return false
	}
	return likeness(now, open.stat)
}

// room lets go of libraries that no process uses, where there are many, and returns why another one of a user cannot be opened.
func (p *prover) room(user uint32) error {
	if !p.full(user) {
		return nil
	}
	used := p.used()
	p.mu.Lock()
	p.libraries = slices.DeleteFunc(p.libraries, func(l *library) bool {
		if !used[l] {
			l.file.Close()
		}
		return !used[l]
	})
	p.mu.Unlock()
	if p.full(user) {
		return fmt.Errorf("too many libraries of user %d are followed", user)
	}
	return nil
}

func (p *prover) full(user uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same, ofUsers := 0, 0
	for _, l := range p.libraries {
		if l.user == user {
			same++
		}
		if l.user != 0 {
			ofUsers++
		}
	}
	return user == 0 && same >= mostOfRoot || user != 0 && (same >= mostOfUser || ofUsers >= mostOfUsers)
}

// An askedFile is a file that is read in the turns of a process.
type askedFile struct {
	t *target
	f *os.File
}

func (a askedFile) ReadAt(buf []byte, at int64) (n int, err error) {
	for n < len(buf) && err == nil {
		size, from := min(len(buf)-n, piece/4), at+int64(n)
		var read []byte
		read, err = askFile(a.t, size, func() ([]byte, error) {
			b := make([]byte, size)
			got, err := a.f.ReadAt(b, from)
			return b[:got], err
		})
		n += copy(buf[n:], read)
	}
	if n == len(buf) {
		err = nil
	}
	return n, err
}

// proven judges by the file's own tables.
func proven(r io.ReaderAt) (begins func(offset uint64) bool, buildID string, err error) {
	m, err := readImage(r)
	if err != nil {
		return nil, "", err
	}
	if err := m.provider(); err != nil {
		return nil, "", err
	}
	functions, err := m.functions()
	if err != nil {
		return nil, "", err
	}
	return func(offset uint64) bool {
		_, found := slices.BinarySearch(functions, offset)
		return found
	}, m.buildID(), nil
}

// roots reports whether a file is root's, and nobody else can write it. A mount with nosuid shows files whose owner is not to be believed, as the
// kernel does not for programs with the set-user-ID bit (mnt_may_suid, fs/namespace.c): a USB stick's, or a program's (FUSE). So does a mount in another user
// namespace. Folders and links do not matter: a uprobe is at the inode.
func roots(open begun) bool {
	const othersWrite = 0o022 // an ACL that lets somebody write shows in the bits of the group: acl(5)
	return open.stat.Uid == 0 && open.stat.Mode&othersWrite == 0 && open.fs.Flags&unix.ST_NOSUID == 0 && open.first
}

// endbr64 is the size of the instruction that marks the target of an indirect jump. The kernel has to single-step it, which takes four
// times as long as other first instructions.
const endbr64 = 4

// marked reports whether a function begins with endbr64.
func marked(f io.ReaderAt, offset uint64) bool {
	var first [endbr64]byte
	_, err := f.ReadAt(first[:], int64(offset))
	return err == nil && first == [endbr64]byte{0xf3, 0x0f, 0x1e, 0xfa}
}

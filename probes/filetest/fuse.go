//go:build linux

package filetest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Served is a file system of a user's program, which takes some requests and never answers them. Each name in it is a regular file of 1 MiB, but
// [Silent], which is never found. Reads, and the closing of a file, are never answered.
type Served struct {
	Folder string
	server *exec.Cmd
}

// Silent is a name in a [Served] folder.
const Silent = "silent"

// serverArgument makes a test the server: whoever waits for it must not be itself, or nothing ends the wait.
const serverArgument = "__filetest_fuse"

func init() {
	if len(os.Args) == 2 && os.Args[1] == serverArgument {
		serve(3)
		os.Exit(0)
	}
}

// Serve mounts one, as a user's, until [Served.Stop] or the end of the test.
func Serve(t testing.TB, user int) *Served {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer device.Close()
	s := &Served{Folder: filepath.Join(t.TempDir(), "served")}
	if err := os.Mkdir(s.Folder, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", device.Fd(), user, user)
	if err := unix.Mount("served", s.Folder, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("mount a FUSE file system: %v", err)
	}
	s.server = exec.Command("/proc/self/exe", serverArgument)
	s.server.Stderr, s.server.ExtraFiles = os.Stderr, []*os.File{device}
	s.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = s.server.Start()
	t.Cleanup(func() {
		s.Stop()
		if err := unix.Unmount(s.Folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Stop kills the server: whoever waits gets an error.
func (s *Served) Stop() {
	if s.server.Process != nil && s.server.ProcessState == nil {
		s.server.Process.Kill()
		s.server.Wait()
	}
}

// Opcodes of FUSE, and sizes of its messages: linux/fuse.h.
const (
	opLookup, opForget, opGetattr, opOpen, opRead, opStatfs, opRelease, opFlush, opInit, opOpendir = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27
	opInterrupt, opForgets                                                                         = 36, 42
	inHead, outHead, entryHead, attrHead, attrSize, initSize, openSize, statfsSize                 = 40, 16, 40, 16, 88, 64, 16, 80
)

func serve(fd int) {
	in := make([]byte, 1<<18)
	for {
		n, err := unix.Read(fd, in)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || n < inHead {
			return
		}
		opcode, unique, node := binary.NativeEndian.Uint32(in[4:]), in[8:16], binary.NativeEndian.Uint64(in[16:])
		if answer, errno, ok := answerTo(opcode, node, string(in[inHead:n])); ok {
			out := binary.NativeEndian.AppendUint32(nil, uint32(outHead+len(answer)))
			out = binary.NativeEndian.AppendUint32(out, uint32(-int32(errno)))
			_, _ = unix.Write(fd, append(append(out, unique...), answer...)) // nobody may wait for it any longer
		}
	}
}

// answerTo returns the answer to a request; ok is false if there is none.
func answerTo(opcode uint32, node uint64, request string) (answer []byte, errno syscall.Errno, ok bool) {
	switch opcode {
	case opRead, opFlush, opForget, opForgets, opInterrupt:
		return nil, 0, false
	case opInit:
		answer = make([]byte, initSize)
		for at, n := range map[int]uint32{0: 7, 4: 31, 8: 4096, 20: 4096} { // major, minor, max_readahead, max_write
			binary.NativeEndian.PutUint32(answer[at:], n)
		}
	case opLookup:
		if request == Silent+"\x00" {
			return nil, 0, false
		}
		answer = append(make([]byte, entryHead), attributes(2)...)
		binary.NativeEndian.PutUint64(answer, 2)
	case opGetattr:
		answer = append(make([]byte, attrHead), attributes(node)...)
	case opOpen, opOpendir:
		answer = make([]byte, openSize)
	case opStatfs:
		answer = make([]byte, statfsSize)
	case opRelease:
	default:
		errno = unix.ENOSYS
	}
	return answer, errno, true
}

// attributes returns a struct fuse_attr.
func attributes(node uint64) []byte {
	a := make([]byte, attrSize)
	binary.NativeEndian.PutUint64(a, node)
	binary.NativeEndian.PutUint32(a[60:], unix.S_IFDIR|0o755)
	binary.NativeEndian.PutUint32(a[64:], 1)
	if node != 1 {
		binary.NativeEndian.PutUint64(a[8:], 1<<20)
		binary.NativeEndian.PutUint32(a[60:], unix.S_IFREG|0o755)
	}
	return a
}

// A Mapper is a process that maps 64 KiB of a file, and has it open. It reads nothing of it.
type Mapper struct {
	PID        int
	FD         int
	Start, End uint64
}

// mapperArgument makes a test a mapper of a file: once, or again and again, with memory that is there in between.
const mapperArgument = "__filetest_map"

func init() {
	if len(os.Args) == 4 && os.Args[1] == mapperArgument {
		keepMapped(os.Args[2], os.Args[3] == "flip")
	}
}

// Map starts one, until the end of the test.
func Map(t testing.TB, path string, flip bool) Mapper {
	t.Helper()
	how := "once"
	if flip {
		how = "flip"
	}
	cmd := exec.Command("/proc/self/exe", mapperArgument, path, how)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		go cmd.Wait() // it closes the file, which may not be answered
	})
	m := Mapper{PID: cmd.Process.Pid}
	if _, err := fmt.Fscan(out, &m.FD, &m.Start, &m.End); err != nil {
		t.Fatal(err)
	}
	return m
}

func keepMapped(path string, flip bool) {
	const size = 64 << 10
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	at, err := unix.MmapPtr(fd, 0, nil, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	fmt.Println(fd, uintptr(at), uintptr(at)+size)
	const once = 300 * time.Microsecond
	for ; flip; time.Sleep(once) {
		memory, err := unix.MmapPtr(-1, 0, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_POPULATE)
		if err != nil || memory != at {
			panic(err)
		}
		time.Sleep(once)
		if _, err := unix.MmapPtr(fd, 0, at, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
			panic(err)
		}
	}
	for {
		time.Sleep(time.Hour)
	}
}

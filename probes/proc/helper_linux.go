package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file has the processes that read for us what may never answer. A read of memory to which a file of FUSE is mapped, and each question about such a
// file, waits for the program that serves it, and once that has taken the request, not even SIGKILL ends the wait (request_wait_answer, fs/fuse/dev.c). A
// thread that waits keeps its process, so we could not end. Nothing shows beforehand whether it will wait: the process may map another page, and put another
// file in the place, between each check and the read.
//
// So a helper reads, which is this program again (helping_linux.go), and has nothing of ours but a socket and memory for what it reads. One that does not
// answer is killed, and left: it ends when the program of the file system does.

// MostMemory is how much memory is read together at most.
const MostMemory = 1 << 20

// mostIdle is how many helpers wait for work. One works for everybody, and more are started only for reads at the same time.
const mostIdle = 8

// idleFor is how long one waits that nobody asks.
const idleFor = time.Minute

// beginning is how long a helper may take to start. No process of a user can make it longer.
const beginning = 30 * time.Second

// helpers are guarded by the lock of their questions.
type helpers struct {
	idle []*helper
	left []*helper // that were killed, and have not ended
}

type helper struct {
	cmd    *exec.Cmd
	socket *os.File
	memory []byte
	holder Holder // since it is left
	expire *time.Timer
}

// A request is what a helper is asked for.
type request struct {
	what           uint64
	pid            int
	start, end     uint64
	folder, within string
}

// What a helper can do.
const (
	readMemory = iota
	openMapped
	openBelow
	openBelowOnly // does not follow a link
	getDevice
)

// ReadMemory reads memory of a process, at most len(buf) bytes and [MostMemory].
func (q *Questions) ReadMemory(user uint32, pid int, address uint64, buf []byte) (n int, err error) {
	r := request{what: readMemory, pid: pid, start: address, end: address + uint64(min(len(buf), MostMemory))}
	_, err = q.request(user, r, func(memory []byte, size int) { n = copy(buf, memory[:min(size, len(memory))]) })
	return n, err
}

// OpenMapped opens the regular file of a mapping of a process for reading. A file that its file system may never answer for is refused ([Mounts]), so
// whoever reads it waits for no program of a user.
func (q *Questions) OpenMapped(user uint32, pid int, m Mapping) (*os.File, error) {
	r := request{what: openMapped, pid: pid, start: m.Start, end: m.End, folder: fmt.Sprint(unix.Mkdev(m.Major, m.Minor))}
	return q.request(user, r, nil)
}

// OpenBelow opens a regular file below the root of a file system as a process sees it: its own root, or with process 0 ours. It stays within, whatever links
// point to. follow means that the path itself may be a link. It refuses the files that [Questions.OpenMapped] does.
func (q *Questions) OpenBelow(user uint32, pid int, folder, path string, follow bool) (*os.File, error) {
	r := request{what: openBelow, pid: pid, folder: folder, within: path}
	if !follow {
		r.what = openBelowOnly
	}
	return q.request(user, r, nil)
}

// Device returns a device that a process has open. Nothing else that the descriptor may be by now gets to us: closing a file of FUSE may take forever, also
// at our end.
func (q *Questions) Device(user uint32, pid, fd int, device uint64) (*os.File, error) {
	return q.request(user, request{what: getDevice, pid: pid, start: uint64(fd), end: device}, nil)
}

// Holders ends the questions, and returns which processes keep helpers waiting.
func (q *Questions) Holders() (all []Holder) {
	q.End()
	const ending, look = 200 * time.Millisecond, 10 * time.Millisecond
	for range ending / look { // others were killed, and end at once
		q.mu.Lock()
		n := len(q.helpers.left)
		q.mu.Unlock()
		if n == 0 {
			return nil
		}
		time.Sleep(look)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.helpers.left {
		all = append(all, h.holder)
	}
	return all
}

// request has a helper do something. use gets what it has read.
func (q *Questions) request(user uint32, r request, use func(memory []byte, n int)) (*os.File, error) {
	ended, ok := q.mayAsk(user)
	if !ok {
		return nil, ErrNotAsked
	}
	h, err := q.helper(ended)
	if err != nil {
		return nil, fmt.Errorf("start a process that reads: %w", err)
	}
	a, err := h.ask(r, ended)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		q.leave(h, Holder{h.cmd.Process.Pid, r.pid, user})
		return nil, ErrNoAnswer
	case err != nil:
		h.end()
		return nil, fmt.Errorf("ask a process that reads: %w", err)
	}
	if a.err == nil && use != nil {
		use(h.memory, a.n)
	}
	q.keep(h)
	return a.file, a.err
}

// helper returns one that is idle, or a new one.
func (q *Questions) helper(ended <-chan struct{}) (*helper, error) {
	for h := q.idle(); h != nil; h = q.idle() {
		if !h.broken() {
			return h, nil
		}
		h.end()
	}
	h, err := startHelper()
	if err != nil {
		return nil, err
	}
	if err := h.begun(ended); err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

func (q *Questions) idle() *helper {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.helpers.idle)
	if n == 0 {
		return nil
	}
	h := q.helpers.idle[n-1]
	q.helpers.idle = q.helpers.idle[:n-1]
	h.expire.Stop()
	return h
}

// keep keeps an idle helper for later.
func (q *Questions) keep(h *helper) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end || len(q.helpers.idle) == mostIdle {
		h.end()
		return
	}
	q.helpers.idle = append(q.helpers.idle, h)
	h.expire = time.AfterFunc(idleFor, func() { q.dismiss(h) })
}

// dismiss ends a helper, unless it works.
func (q *Questions) dismiss(h *helper) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.helpers.idle, h); i >= 0 {
		q.helpers.idle = slices.Delete(q.helpers.idle, i, i+1)
		h.end()
	}
}

// leave kills a helper that does not answer, and counts it until it has ended.
func (q *Questions) leave(h *helper, holder Holder) {
	h.holder = holder
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leftLocked(holder.User)
	q.helpers.left = append(q.helpers.left, h)
	h.close()
	go func() {
		h.cmd.Wait() // it was killed
		q.mu.Lock()
		defer q.mu.Unlock()
		q.unanswered[holder.User]--
		q.all--
		q.helpers.left = slices.DeleteFunc(q.helpers.left, func(o *helper) bool { return o == h })
	}()
}

// dismiss ends those that are idle; those that are left were killed.
func (h *helpers) dismiss() {
	for _, idle := range h.idle {
		idle.expire.Stop()
		idle.end()
	}
	h.idle = nil
}

// startHelper starts this program as a helper. It inherits nothing: what is left behind must keep no pipe, terminal or folder of ours.
func startHelper() (_ *helper, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // for deadlines
		unix.Close(pair[0])
		return nil, err
	}
	h := &helper{socket: os.NewFile(uintptr(pair[0]), "socket")}
	fd, err := unix.MemfdCreate("trace", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("memfd_create", err), h.socket.Close())
	}
	memory := os.NewFile(uintptr(fd), "memory")
	defer memory.Close()
	if err = memory.Truncate(MostMemory); err == nil {
		h.memory, err = unix.Mmap(fd, 0, MostMemory, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(err, h.socket.Close())
	}
	h.cmd = exec.Command("/proc/self/exe", helperArgument)
	h.cmd.Args[0], h.cmd.Dir, h.cmd.Env = os.Args[0], "/", []string{"GOMAXPROCS=1"}
	h.cmd.ExtraFiles = []*os.File{theirs, memory} // socketFD, memoryFD
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := h.cmd.Start(); err != nil {
		return nil, errors.Join(err, unix.Munmap(h.memory), h.socket.Close())
	}
	return h, nil
}

// begun waits until a helper works.
func (h *helper) begun(ended <-chan struct{}) error {
	for began := time.Now(); ; {
		_, err := h.receive(Patience / 4)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > beginning {
			return err
		}
		select {
		case <-ended:
			return ErrNoAnswer
		default:
		}
	}
}

// close kills a helper. Its end is not waited for.
func (h *helper) close() {
	h.cmd.Process.Kill()
	h.socket.Close()
	unix.Munmap(h.memory)
}

func (h *helper) end() {
	h.close()
	go h.cmd.Wait()
}

// broken reports whether a helper has ended: somebody may have killed it.
func (h *helper) broken() bool {
	of := []unix.PollFd{{Fd: int32(h.socket.Fd())}}
	n, err := unix.Poll(of, 0)
	return err != nil || n > 0
}

// An answer of a helper.
type answer struct {
	n    int
	file *os.File
	err  error
}

// ask passes a request on, and waits for the answer: os.ErrDeadlineExceeded if it does not come.
func (h *helper) ask(r request, ended <-chan struct{}) (answer, error) {
	if _, err := h.socket.Write(r.encode()); err != nil {
		return answer{}, err
	}
	w := newWait(h.cmd.Process.Pid, Patience)
	process := strconv.Itoa(w.thread)
	for {
		a, err := h.receive(Patience / 4)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return a, err
		}
		select {
		case <-ended:
			w.patience = 0
		default:
		}
		if w.over(sleepOf(process, w.thread)) {
			return a, err
		}
	}
}

// receive receives a message: the number of bytes that were read, the number of an error and its text, and a file.
func (h *helper) receive(within time.Duration) (a answer, err error) {
	if err := h.socket.SetReadDeadline(time.Now().Add(within)); err != nil {
		return a, err
	}
	conn, err := h.socket.SyscallConn()
	if err != nil {
		return a, err
	}
	message, control := make([]byte, longestMessage), make([]byte, unix.CmsgSpace(4))
	var n, size int
	var wrong error
	err = conn.Read(func(fd uintptr) bool {
		n, size, _, _, wrong = unix.Recvmsg(int(fd), message, control, unix.MSG_CMSG_CLOEXEC)
		return wrong != unix.EAGAIN && wrong != unix.EINTR
	})
	if err = errors.Join(err, wrong); err != nil {
		return a, err
	}
	if n < answerHead {
		return a, errors.New("it has ended")
	}
	a.n = int(binary.NativeEndian.Uint64(message))
	text := string(message[answerHead:n])
	if errno := syscall.Errno(binary.NativeEndian.Uint64(message[8:])); errno == served {
		a.err = ErrServed
	} else if errno != 0 {
		a.err = &textError{text, errno}
	} else if text != "" {
		a.err = errors.New(text)
	}
	a.file, err = fileOf(control[:size])
	return a, err
}

// fileOf returns the file of a control message, nil if it has none.
func fileOf(control []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "file"), nil
}

// served stands for [ErrServed] in a message.
const served = unix.EREMOTE

// A textError is an error of a system call that a helper made.
type textError struct {
	text  string
	errno syscall.Errno
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.errno }

// The messages: the numbers of a request and its texts, which a byte 0 divides, and the numbers of an answer and its text.
const (
	requestHead    = 4 * 8
	answerHead     = 2 * 8
	longestMessage = requestHead + 2*unix.PathMax
)

func (r request) encode() []byte {
	m := make([]byte, 0, requestHead+len(r.folder)+1+len(r.within))
	for _, n := range []uint64{r.what, uint64(r.pid), r.start, r.end} {
		m = binary.NativeEndian.AppendUint64(m, n)
	}
	return append(append(append(m, r.folder...), 0), r.within...)
}

func decode(m []byte) (r request, err error) {
	if len(m) < requestHead {
		return r, fs.ErrInvalid
	}
	number := func(i int) uint64 { return binary.NativeEndian.Uint64(m[8*i:]) }
	r = request{what: number(0), pid: int(number(1)), start: number(2), end: number(3)}
	r.folder, r.within, _ = strings.Cut(string(m[requestHead:]), "\x00")
	return r, nil
}

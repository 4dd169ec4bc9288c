//go:build linux

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/serve/wire"
	"trace/lang/syntax"
)

// webName is the binary that talks HTTP, and the user that it runs as if the system has one.
const webName = "trace-web"

// nobody is the user and the group without rights, in all distributions that have one. Other programs may run as it, too.
const nobody = 65534

// webUser returns as whom the web process runs that this process starts.
func webUser() (uid, gid int) {
	if os.Getuid() != 0 {
		return os.Getuid(), os.Getgid()
	}
	if u, err := user.Lookup(webName); err == nil {
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil && uid > 0 && gid > 0 {
			return uid, gid
		}
	}
	return nobody, nobody
}

// socketFolders is where the private socket may be. An image of the binaries alone has only /dev/shm.
func socketFolders() []string { return []string{os.TempDir(), "/run", "/dev/shm"} }

// privateSocket listens where only this user and the web process get in, in the first of the folders that can be written. remove removes what it
// has made.
func privateSocket(folders ...string) (l *net.UnixListener, remove func() error, err error) {
	folder, err := makeFolder(folders)
	if err != nil {
		return nil, nil, fmt.Errorf("socket: %w: set TMPDIR to a folder that can be written", err)
	}
	remove = func() error { return os.RemoveAll(folder) }
	if err := os.Chmod(folder, 0o711); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	if l, err = socketAt(filepath.Join(folder, "loader.sock"), 0o600); err == nil {
		uid, _ := webUser()
		err = os.Lchown(l.Addr().String(), uid, -1)
	}
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return l, remove, nil
}

// makeFolder makes a new folder in the first of these where it can; the error is the first one's.
func makeFolder(in []string) (string, error) {
	var refusal error
	for _, parent := range in {
		folder, err := os.MkdirTemp(parent, "trace-serve-")
		if err == nil {
			return folder, nil
		}
		refusal = cmp.Or(refusal, err)
	}
	return "", refusal
}

// socketAt listens at a path, and replaces what a loader has left there that has ended.
func socketAt(path string, mode os.FileMode) (*net.UnixListener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("socket: a loader is answering at %s already", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w: give its path with --socket", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// findWeb returns the path of the web process: beside this binary, or in PATH.
func findWeb() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), webName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(webName)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside trace nor in PATH: install it, or let another service start it and give --socket", webName)
	}
	return path, nil
}

// Restarts of the web process: it ends by itself when its settings change.
const restart = time.Second

// silence is how long the web process may ask nothing. It asks every five seconds: one that asks nothing was stopped.
const silence = 30 * time.Second

// webProcess is the web process that this process has started.
type webProcess struct {
	pid atomic.Int64 // 0: none
	// heard is when it asked last.
	heard atomic.Pointer[time.Time]
}

// allows returns nil for the web process itself and for root: other processes of its user may not ask.
func (w *webProcess) allows(p wire.Peer) error {
	if int64(p.PID) == w.pid.Load() {
		now := time.Now()
		w.heard.Store(&now)
		return nil
	}
	if p.UID == 0 {
		return nil
	}
	return fmt.Errorf("process %d of user %d may not ask the loader: only its own %s may", p.PID, p.UID, webName)
}

// keepWeb runs the web process until ctx ends. It is started again when it ends; the loader counts on.
func (s *Service) keepWeb(ctx context.Context, w *webProcess, path, socket string) {
	for ctx.Err() == nil {
		if err := w.run(ctx, path, socket, silence); err != nil && ctx.Err() == nil {
			s.options.Log.Error(webName + " has ended: " + err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(restart):
		}
	}
}

// run runs the web process once. Started by root, it gets a user without rights, no capability, also none to inherit, and never new privileges.
// The last two belong to a thread, and are inherited by what it starts (capabilities(7), prctl(2)): so a thread is used that ends afterwards. The
// process ends with that thread, also if this process is killed: otherwise it would keep its address from the next one.
//
// It inherits no file but /dev/null and a pipe: none that this process was started with, and not the terminal, to which it could type.
func (w *webProcess) run(ctx context.Context, path, socket string, silence time.Duration) error {
	cmd := exec.CommandContext(ctx, path, "--socket", socket)
	said := &relay{to: os.Stderr}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM, Setsid: true}
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		over <- w.runAs(cmd, silence)
	}()
	return <-over
}

// runAs starts the process with the user and the rights that it gets, and waits for its end. If it is silent for long, it is killed.
func (w *webProcess) runAs(cmd *exec.Cmd, silence time.Duration) error {
	if os.Getuid() == 0 {
		uid, gid := webUser()
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := dropPrivileges(); err != nil {
			return err
		}
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	began := time.Now()
	w.heard.Store(&began)
	w.pid.Store(int64(cmd.Process.Pid))
	defer w.pid.Store(0)
	var silent atomic.Bool
	tick := time.NewTicker(silence / 4)
	defer tick.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if time.Since(*w.heard.Load()) > silence {
				silent.Store(true)
				cmd.Process.Kill() // also if it is stopped
				return
			}
		}
	}()
	err := cmd.Wait()
	if silent.Load() {
		return fmt.Errorf("it was killed, as it has asked nothing for %v", silence)
	}
	return err
}

// closeOnExec lets no process that is started from now on have files that this process was started with. What Go opens is that way anyhow.
func closeOnExec() error {
	const first = 3 // behind standard error
	err := unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) { // before 5.9, and before 5.11
		return err
	}
	return closeEachOnExec(first)
}

// closeEachOnExec does the same with each file from this number on.
func closeEachOnExec(first int) error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("files that trace was started with: %w", err)
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// relay shows what the web process writes, line by line and without what a terminal would obey.
type relay struct {
	to   io.Writer
	line []byte // as far as it has come
}

// longestLine is shown as a line of its own.
const longestLine = 16 << 10

func (r *relay) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			r.line = append(r.line, c)
		}
		if c == '\n' || len(r.line) == longestLine {
			fmt.Fprintln(r.to, syntax.Visible(string(r.line)))
			r.line = r.line[:0]
		}
	}
	return len(p), nil
}

// dropPrivileges empties the bounding set of this thread, and forbids new privileges to what it executes.
func dropPrivileges() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// A kernel that lacks one of the newer capabilities has nothing to drop.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

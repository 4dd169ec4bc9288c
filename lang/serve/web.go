//go:build linux

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is the user and the group without rights, in all distributions that have one.
const nobody = 65534

// webUser is as whom the web process runs that this process starts.
func webUser() int {
	if os.Getuid() == 0 {
		return nobody
	}
	return os.Getuid()
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
		err = os.Lchown(l.Addr().String(), webUser(), -1)
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

// webName is the binary that talks HTTP.
const webName = "trace-web"

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

// keepWeb runs the web process until ctx ends. It is started again when it ends; the loader counts on.
func (s *Service) keepWeb(ctx context.Context, path, socket string) {
	for ctx.Err() == nil {
		if err := runWeb(ctx, path, socket); err != nil && ctx.Err() == nil {
			s.options.Log.Error(webName + " has ended: " + err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(restart):
		}
	}
}

// runWeb runs the web process once. Started by root, it gets the user nobody, no capability, also none to inherit, and never new privileges. The
// last two belong to a thread, and are inherited by what it starts (capabilities(7), prctl(2)): so a thread is used that ends afterwards. The
// process ends with that thread, also if this process is killed: otherwise it would keep its address from the next one.
func runWeb(ctx context.Context, path, socket string) error {
	cmd := exec.CommandContext(ctx, path, "--socket", socket)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if os.Getuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
			if err := dropPrivileges(); err != nil {
				over <- err
				return
			}
		}
		over <- cmd.Run()
	}()
	return <-over
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

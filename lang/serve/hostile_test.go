//go:build linux

package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/codegen/bpftest"
	"trace/lang/serve/wire"
)

// inheritsNothing returns an error if this process has a file that it has neither opened nor needs: its log is a pipe.
func inheritsNothing() error {
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range open {
		to, err := os.Readlink(link)
		known := to == "/dev/null" || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "anon_inode:") || strings.HasSuffix(to, "/fd") ||
			strings.HasPrefix(to, "/sys/fs/cgroup/") // of Go, which counts CPUs
		if err == nil && !known {
			errs = append(errs, fmt.Errorf("%s is %s", link, to))
		}
	}
	if _, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		errs = append(errs, errors.New("it has a terminal"))
	}
	return errors.Join(errs...)
}

// The web process has no file that this process was started with, as by `exec 9</etc/shadow; trace serve`. Started without that, it has.
func TestWebInheritsNothing(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(secret, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	binary := named(t, webName)
	inherited := func() bool {
		out, err := exec.Command(binary, "--socket", "files").CombinedOutput()
		if err != nil && !strings.Contains(string(out), secret) {
			t.Errorf("%v: %s", err, out)
		}
		return err != nil
	}
	if !inherited() {
		t.Error("the control inherits nothing")
	}
	if err := (&webProcess{}).run(t.Context(), binary, "files", time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	if err := closeEachOnExec(3); err != nil || inherited() {
		t.Errorf("%v: as on kernels without close_range(2), it inherits", err)
	}
}

// A web process that asks nothing, as another process of its user has stopped it, is killed, and so started again.
func TestWebIsSilent(t *testing.T) {
	err := (&webProcess{}).run(t.Context(), named(t, webName), "stopped", 300*time.Millisecond)
	if err == nil || err.Error() != "it was killed, as it has asked nothing for 300ms" {
		t.Error(err)
	}
}

// What the web process writes is shown without what a terminal would obey.
func TestRelay(t *testing.T) {
	var out bytes.Buffer
	r := &relay{to: &out}
	for _, part := range []string{"a \x1b[2J", "b\n", "c\td\n\n", strings.Repeat("x", longestLine) + "y\nrest"} {
		io.WriteString(r, part)
	}
	if want := "a \\x1b[2Jb\nc\td\n\n" + strings.Repeat("x", longestLine) + "\ny\n"; out.String() != want {
		t.Errorf("%.100q", out.String())
	}
}

// userName is the name under which this binary prints as whom the web process would run.
const userName = "user"

// The web process has a user of its own where the system has one: here the image's. It is never root.
func TestWebUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	rooted := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(rooted, []byte("root:x:0:0::/:/bin/sh\ntrace-web:x:0:0::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := named(t, userName)
	for passwd, want := range map[string]string{"../../cmd/trace-web/deploy/passwd": "59935 59935\n", rooted: "65534 65534\n"} {
		out, err := exec.Command("unshare", "--mount", "sh", "-ec", `mount --bind "$1" /etc/passwd; exec "$2"`, "sh", passwd, binary).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s: %v, %s, want %s", passwd, err, out, want)
		}
	}
}

// attackerName is the name under which this binary attacks other processes.
const attackerName = "attacker"

// attacks are what a process may try with another one.
var attacks = map[string]func(pid int) error{
	"PTRACE_ATTACH": func(pid int) error { return unix.PtraceAttach(pid) },
	"PTRACE_SEIZE":  func(pid int) error { return unix.PtraceSeize(pid) },
	"mem":           func(pid int) error { return opens(pid, "mem") },
	"maps":          func(pid int) error { return opens(pid, "maps") },
	"environ":       func(pid int) error { return opens(pid, "environ") },
	"fd":            func(pid int) error { return opens(pid, "fd/2") },
	"root":          func(pid int) error { return opens(pid, "root/etc") },
	"process_vm_readv": func(pid int) error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	},
	"pidfd_getfd": func(pid int) error {
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(process, 2, 0)
		return err
	},
}

func opens(pid int, file string) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err == nil {
		_, err = io.ReadAll(io.LimitReader(f, 1))
		f.Close()
	}
	return err
}

// attack tries all that a process of the same user as the web process may, against it, against the loader and its socket. The control is a process of
// that user that nothing protects: what can be done to it must not be refused for another reason.
func attack(args []string) error {
	pids := make([]int, 3)
	for i := range pids {
		pids[i], _ = strconv.Atoi(args[i])
	}
	control, web, loader := pids[0], pids[1], pids[2]
	var errs []error
	for _, name := range []string{"environ", "fd"} {
		if err := attacks[name](control); err != nil {
			errs = append(errs, fmt.Errorf("%s of the control: %w", name, err))
		}
	}
	for name, try := range attacks {
		for _, pid := range []int{web, loader} {
			if err := try(pid); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
				errs = append(errs, fmt.Errorf("%s of %d: %w", name, pid, refused(err)))
			}
		}
	}
	for _, do := range []string{wire.GetSettings, wire.GetMetrics, wire.DoReload, wire.GetEvents} {
		_, err := wire.Ask[any](context.Background(), wire.Client{Path: args[3]}, wire.Request{Do: do})
		if err == nil || !strings.HasSuffix(err.Error(), "may not ask the loader: only its own trace-web may") {
			errs = append(errs, fmt.Errorf("it asks for %s: %w", do, refused(err)))
		}
	}
	for _, signal := range []syscall.Signal{unix.SIGSTOP, unix.SIGKILL, unix.SIGHUP} {
		if err := unix.Kill(loader, signal); err != unix.EPERM {
			errs = append(errs, fmt.Errorf("%v to the loader: %w", signal, refused(err)))
		}
	}
	unix.Kill(web, unix.SIGKILL) // it may, unless the web process has a user of its own
	return errors.Join(errs...)
}

// refused returns an error also for what was not refused.
func refused(err error) error { return cmp.Or(err, errors.New("it is not refused")) }

// A process of the web process's user, as nobody's programs are, gets neither at its memory and files nor at the loader, and cannot ask the loader.
// It can kill the web process, which is started again: the counts go on.
func TestSameUser(t *testing.T) {
	if err := bpftest.Permitted(); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root: %v", err)
	}
	bin := forNobody(t)
	if out, err := exec.Command("go", "build", "-o", bin, "trace/cmd/trace-web").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", forNobody(t))
	address := freeAddress(t)
	file := configured(t, "reload_by_http: true\nlisten: "+address+"\nprograms: [{name: calls, program: 'syscall:enter / nr == getpgid && pid == "+pid()+" / { @n = count() }'}]\n")
	var log lockedBuffer
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() {
		over <- Main(ctx, Settings{Options: Options{Config: file, Log: slog.New(slog.NewTextHandler(&log, nil))}}, io.Discard)
	}()
	defer func() {
		end()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	ready := func() bool { status, _ := ask(address, "/-/ready"); return status == http.StatusOK }
	waitFor(t, "the programs", ready)
	call(100)
	sockets, err := filepath.Glob(os.Getenv("TMPDIR") + "/trace-serve-*/loader.sock")
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	uid, gid := webUser()
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	control := exec.Command("sleep", "60")
	control.SysProcAttr = as
	if err := control.Start(); err != nil {
		t.Fatal(err)
	}
	defer control.Wait()
	defer control.Process.Kill()
	web := webPID(t)
	attacker := exec.Command(named(t, attackerName), strconv.Itoa(control.Process.Pid), strconv.Itoa(web), pid(), sockets[0])
	attacker.SysProcAttr = as
	if out, err := attacker.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	waitFor(t, "another web process", func() bool { return unix.Kill(web, 0) == unix.ESRCH && ready() })
	call(11)
	if _, text := ask(address, "/metrics"); !strings.Contains(text, "\ntrace_calls_n_total 111\n") {
		t.Errorf("metrics: %s", text)
	}
	if !strings.Contains(log.String(), "trace-web has ended: signal: killed") {
		t.Error(log.String())
	}
}

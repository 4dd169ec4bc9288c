//go:build linux

package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/lang/codegen/bpftest"
)

// The web process that root's loader starts is nobody's, and can get no privilege. It shows what the programs count, and ends with the loader. A
// change of the file is seen, and trace-web starts again if its own settings have changed.
func TestWebProcess(t *testing.T) {
	if err := bpftest.Permitted(); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root: %v", err)
	}
	bin := forNobody(t)
	if out, err := exec.Command("go", "build", "-o", bin, "trace/cmd/trace-web").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	address := freeAddress(t)
	file := filepath.Join(t.TempDir(), "trace.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := "programs: [{name: calls, program: 'syscall:enter / nr == getpgid && pid == " + pid() + " / { @n = count() }'}]\n"
	write("listen: " + address + "\n" + program)
	var log bytes.Buffer
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() {
		over <- Main(ctx, Settings{Options: Options{Config: file, Log: slog.New(slog.NewTextHandler(&log, nil))}}, io.Discard)
	}()
	waitFor(t, "the programs", func() bool { status, _ := ask(address, "/-/ready"); return status == http.StatusOK })
	call(100)
	if _, text := ask(address, "/metrics"); !strings.Contains(text, "\ntrace_calls_n_total 100\n") {
		t.Errorf("metrics: %s", text)
	}
	pid := webPID(t)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Uid:\s65534\s65534\s65534\s65534`, `Gid:\s65534\s65534\s65534\s65534`, `Groups:\s*`, `CapInh:\s0+`, `CapPrm:\s0+`, `CapEff:\s0+`, `CapBnd:\s0+`, `CapAmb:\s0+`, `NoNewPrivs:\s1`} {
		if !regexp.MustCompile("(?m)^" + want + "$").Match(status) {
			t.Errorf("%s is not in\n%s", want, status)
		}
	}
	moved := freeAddress(t)
	write("listen: " + moved + "\n" + program)
	waitFor(t, "trace-web at its new address", func() bool { status, _ := ask(moved, "/-/ready"); return status == http.StatusOK })
	if _, text := ask(moved, "/metrics"); !strings.Contains(text, "\ntrace_calls_n_total 100\n") {
		t.Errorf("metrics after a change of the address: %s", text)
	}
	pid = webPID(t)
	end()
	if err := <-over; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("trace-web after the end: %v", err)
	}
}

// bpfCalls makes calls of bpf(2) that only the privileged may make, also where kernel.unprivileged_bpf_disabled is 0. A library would explain an
// error in its own way.
func bpfCalls() map[string]error {
	call := func(command uintptr, attributes [128]byte) error {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
		if errno != 0 {
			return errno
		}
		return unix.Close(int(fd))
	}
	var hash, program [128]byte // union bpf_attr of linux/bpf.h
	for i, v := range []uint32{unix.BPF_MAP_TYPE_LRU_HASH, 4, 4, 1} {
		binary.NativeEndian.PutUint32(hash[4*i:], v)
	}
	binary.NativeEndian.PutUint32(program[0:], unix.BPF_PROG_TYPE_RAW_TRACEPOINT)
	binary.NativeEndian.PutUint32(program[4:], 2)
	binary.NativeEndian.PutUint64(program[8:], uint64(uintptr(unsafe.Pointer(&returnZero))))
	binary.NativeEndian.PutUint64(program[16:], uint64(uintptr(unsafe.Pointer(&gpl))))
	return map[string]error{"BPF_MAP_CREATE": call(unix.BPF_MAP_CREATE, hash), "BPF_PROG_LOAD": call(unix.BPF_PROG_LOAD, program)}
}

// What the kernel reads by its address: a stack may move, and these do not.
var (
	returnZero = [16]byte{0: 0xb7, 8: 0x95} // r0 = 0; exit
	gpl        = [4]byte{'G', 'P', 'L'}
)

// refusesBPF returns an error unless the kernel refuses every call.
func refusesBPF() error {
	var errs []error
	for name, err := range bpfCalls() {
		if err != unix.EPERM {
			errs = append(errs, fmt.Errorf("%s as user %d: got %v, want %v", name, os.Getuid(), err, unix.EPERM))
		}
	}
	return errors.Join(errs...)
}

// What is started as the web process cannot call bpf(2), whatever the kernel permits to those without privileges. The same calls succeed here.
func TestWebCannotLoad(t *testing.T) {
	if err := bpftest.Permitted(); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root: %v", err)
	}
	for name, err := range bpfCalls() {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := (&webProcess{}).run(t.Context(), named(t, webName), "calls", time.Minute); err != nil {
		t.Error(err)
	}
}

// asWeb is what this binary does as the web process, by the socket that it is given.
var asWeb = map[string]func() error{"calls": refusesBPF, "files": inheritsNothing, "stopped": func() error { return unix.Kill(os.Getpid(), unix.SIGSTOP) }}

// named returns this binary under another name, for everybody.
func named(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(forNobody(t), name)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// forNobody returns a folder that everybody gets at.
func forNobody(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, dir := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// webPID returns the process that this one has started.
func webPID(t *testing.T) (pid int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // the thread may have ended
		for child := range strings.FieldsSeq(string(children)) {
			if comm, _ := os.ReadFile("/proc/" + child + "/comm"); string(comm) == webName+"\n" {
				pid, _ = strconv.Atoi(child)
			}
		}
	}
	if pid == 0 {
		t.Fatal(webName + " does not run")
	}
	return pid
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func ask(address, path string) (status int, text string) {
	r, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	data, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(data)
}

// Without the web process, the service ends with a message that names it.
// A container of the image has no /tmp.
func TestPrivateSocket(t *testing.T) {
	missing, writable := filepath.Join(t.TempDir(), "missing"), t.TempDir()
	l, remove, err := privateSocket(missing, writable)
	if err != nil {
		t.Fatal(err)
	}
	path := l.Addr().String()
	if !strings.HasPrefix(path, writable+"/trace-serve-") {
		t.Errorf("it is at %s", path)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := errors.Join(l.Close(), remove()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(writable); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, _, err := privateSocket(missing); err == nil || !strings.HasPrefix(err.Error(), "socket: stat "+missing) || !strings.HasSuffix(err.Error(), ": set TMPDIR to a folder that can be written") {
		t.Errorf("got %v", err)
	}
	if t.Setenv("TMPDIR", missing); !slices.Contains(socketFolders(), "/dev/shm") || socketFolders()[0] != missing {
		t.Errorf("got %v", socketFolders())
	}
}

func TestNoWeb(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := findWeb(); err == nil || err.Error() != "trace-web is neither beside trace nor in PATH: install it, or let another service start it and give --socket" {
		t.Error(err)
	}
	if _, err := socketAt(filepath.Join(t.TempDir(), "none", "s"), 0o600); err == nil || !strings.HasPrefix(err.Error(), "socket: ") || !strings.HasSuffix(err.Error(), ": give its path with --socket") {
		t.Error(err)
	}
}

// A thread that lacks the right to drop capabilities does not start the web process.
func TestDropPrivileges(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			result <- err
			return
		}
		result <- dropPrivileges()
	}()
	if err := <-result; !errors.Is(err, unix.EPERM) || err.Error() != "drop capability 0: operation not permitted" {
		t.Error(err)
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"
)

// service is a trace serve of a test, with its trace-web.
type service struct {
	file, address string
	manager       *manager // nil without one
	cmd           *exec.Cmd
	log           string
	over          chan struct{} // closed when it has ended, with err
	err           error
}

// newService starts a service with a configuration, besides its address.
func newService(t *testing.T, config string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{file: filepath.Join(dir, "trace.yaml"), address: freeAddress(t), log: filepath.Join(dir, "log")}
	provideWeb(t)
	s.configure(t, config)
	t.Cleanup(func() {
		if log, err := os.ReadFile(s.log); t.Failed() {
			t.Logf("%v: %s", err, log)
		}
	})
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// configure writes the configuration.
func (s *service) configure(t *testing.T, config string) {
	t.Helper()
	if err := os.WriteFile(s.file, fmt.Appendf(nil, "listen: %s\n%s", s.address, config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts it, and waits until all programs are attached.
func (s *service) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ exec trace serve -c "$1"`, "sh", s.file)
	if s.manager != nil {
		s.cmd.Env, s.cmd.ExtraFiles = s.manager.handOver(t)
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	err = s.cmd.Start()
	for _, f := range s.cmd.ExtraFiles {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.over = make(chan struct{})
	go func() {
		s.err = s.cmd.Wait()
		close(s.over)
	}()
	s.attached(t)
}

// created returns when metrics were 0.
func (s *service) created(t *testing.T) map[string]time.Time {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all := map[string]time.Time{}
	d := expfmt.NewDecoder(answer.Body, expfmt.ResponseFormat(answer.Header))
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		switch m := f.Metric[0]; {
		case m.Counter != nil:
			all[f.GetName()] = m.Counter.GetCreatedTimestamp().AsTime()
		case m.Histogram != nil:
			all[f.GetName()] = m.Histogram.GetCreatedTimestamp().AsTime()
		}
	}
}

// attached waits until all programs are attached.
func (s *service) attached(t *testing.T) {
	t.Helper()
	why := ""
	defer func() {
		if t.Failed() {
			t.Log(why)
		}
	}()
	eventually(t, "the programs are attached", func() (is bool) {
		select {
		case <-s.over:
			t.Fatalf("trace serve has ended: %v", s.err)
		default:
		}
		var status int
		status, why = httpGet(s.address, "/-/ready")
		return status == http.StatusOK
	})
}

// stop ends it as systemd does.
func (s *service) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	if <-s.over; s.err != nil {
		t.Errorf("trace serve: %v", s.err)
	}
}

// provideWeb makes trace-web a command. In a virtual machine there is no compiler: .ci/vmtest has built it.
func provideWeb(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	for _, dir := range []string{bin, filepath.Dir(bin)} { // nobody has to get at it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	built, err := os.ReadFile(filepath.Join(root, ".vmtest/trace-web"))
	switch {
	case inMachine() && err != nil:
		err = fmt.Errorf("%w: .ci/vmtest builds it", err)
	case inMachine():
		err = os.WriteFile(filepath.Join(bin, "trace-web"), built, 0o755)
	default:
		var out []byte
		if out, err = exec.Command("go", "build", "-o", bin, "trace/cmd/trace-web").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// manager keeps what a service gives to systemd, and hands it to the next process.
type manager struct {
	path   string
	mu     sync.Mutex
	stored map[string]*os.File
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(t.TempDir(), "notify"), stored: map[string]*os.File{}}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for m.receive(conn) == nil {
		}
	}()
	t.Cleanup(func() { conn.Close(); <-over })
	return m
}

// receive does what a message of sd_notify(3) asks for.
func (m *manager) receive(conn *net.UnixConn) error {
	text, rights := make([]byte, 4096), make([]byte, 4096)
	n, size, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return err
	}
	var f *os.File
	if all, err := unix.ParseSocketControlMessage(rights[:size]); err == nil && len(all) > 0 {
		if fds, err := unix.ParseUnixRights(&all[0]); err == nil {
			f = os.NewFile(uintptr(fds[0]), "stored")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := regexp.MustCompile("FDNAME=(.*)").FindSubmatch(text[:n])
	switch {
	case bytes.HasPrefix(text, []byte("FDSTORE=1\n")):
		m.stored[string(name[1])] = f
	case bytes.HasPrefix(text, []byte("FDSTOREREMOVE=1\n")):
		m.stored[string(name[1])].Close()
		delete(m.stored, string(name[1]))
	case f != nil: // BARRIER=1
		f.Close()
	}
	return nil
}

// handOver returns the environment and the files of the next process. The files are copies: it may remove the stored ones at once.
func (m *manager) handOver(t *testing.T) (env []string, files []*os.File) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, f := range m.stored {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		names, files = append(names, name), append(files, os.NewFile(uintptr(fd), name))
	}
	return append(os.Environ(), "NOTIFY_SOCKET="+m.path, fmt.Sprint("LISTEN_FDS=", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":")), files
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

func inMachine() bool { return os.Getenv("VMTEST_KERNEL") != "" }

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func httpGet(address, path string) (status int, text string) {
	r, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(data)
}

// What a service has counted, the next one goes on with if systemd keeps it, also for a program that has changed back. Without systemd, and after
// a crash, all begins at 0.
func TestServeRestart(t *testing.T) {
	requireLive(t)
	const config = `programs:
  - name: calls
    program: 'syscall:enter / comm == "helper" && nr == getppid / { @n = count(); @by[comm] = sum(2) }'
  - name: latency
    program: 'syscall:exit / comm == "helper" && nr == getppid / { @ = hist(latency, 5) }'
`
	s := newService(t, config)
	s.manager = newManager(t)
	s.stop(t)
	s.start(t)
	call := func(n string) {
		t.Helper()
		if out, err := exec.Command("helper", n).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	shows := func(n int) {
		t.Helper()
		_, text := httpGet(s.address, "/metrics")
		for _, want := range []string{
			fmt.Sprintf("\ntrace_calls_n_total %d\n", n), fmt.Sprintf("\ntrace_calls_by_total{comm=\"helper\"} %d\n", 2*n), fmt.Sprintf("\ntrace_latency_seconds_count %d\n", n),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
	call("100")
	shows(100)
	before := s.created(t)
	for n := range 3 {
		call("10") // after the last scrape
		s.stop(t)
		s.start(t)
		shows(100 + 10*(n+1))
	}
	after := s.created(t)
	for _, name := range []string{"trace_calls_n_total", "trace_calls_by_total", "trace_latency_seconds"} {
		if !after[name].Equal(before[name]) {
			t.Errorf("%s began at %v, and at %v before", name, after[name], before[name])
		}
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.over
	s.start(t)
	call("5")
	_, text := httpGet(s.address, "/metrics")
	if !strings.Contains(text, "\ntrace_calls_n_total 5\n") || !s.created(t)["trace_calls_n_total"].After(after["trace_calls_n_total"]) {
		t.Errorf("after a crash:\n%s", text)
	}
}

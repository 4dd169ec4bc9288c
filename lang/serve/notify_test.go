//go:build linux

package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/codegen/bpftest"
)

// manager is what systemd is for a service: it hears the messages of sd_notify(3).
type manager struct {
	*net.UnixConn
}

func listenAsManager(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return manager{conn}
}

// hear returns the next message that has a text, and how many others came before it.
func (m manager) hear(t *testing.T, text string) (message string, before int) {
	t.Helper()
	m.SetReadDeadline(time.Now().Add(20 * time.Second))
	for b := make([]byte, 4096); ; before++ {
		n, err := m.Read(b)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if message = string(b[:n]); strings.Contains(message, text) {
			return message, before
		}
	}
}

// serving runs the command until the returned function is called.
func serving(t *testing.T, text string) (end func()) {
	t.Helper()
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "trace.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error)
	go func() {
		over <- Main(ctx, Settings{Options: Options{Config: file, Log: slog.New(slog.DiscardHandler)}, Socket: filepath.Join(dir, "s")}, io.Discard)
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// systemd hears when the service is ready, that it lives, and when it reads its configuration after SIGHUP.
func TestNotify(t *testing.T) {
	m := listenAsManager(t)
	const period = 400 * time.Millisecond
	t.Setenv("WATCHDOG_USEC", "400000")
	end := serving(t, "")
	m.hear(t, "READY=1")
	began := time.Now()
	for range 6 {
		if _, before := m.hear(t, "WATCHDOG=1"); before > 0 {
			t.Errorf("%d other messages", before)
		}
	}
	if took := time.Since(began); took < 5*period/2 || took > 6*period {
		t.Errorf("6 messages took %v", took)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if message, _ := m.hear(t, "RELOADING=1"); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+\n$`).MatchString(message) {
		t.Errorf("%q", message)
	}
	m.hear(t, "READY=1")
	over := make(chan struct{})
	go func() {
		end()
		close(over)
	}()
	for _, message := range []string{"STOPPING=1", "FDSTORE=1\nFDNAME=trace-state", "BARRIER=1"} {
		m.hear(t, message)
	}
	<-over
}

// A systemd that is not there, or does not read, holds up nothing for long.
func TestNobodyHears(t *testing.T) {
	listenAsManager(t)
	if err := barrier(50 * time.Millisecond); err == nil || err.Error() != "systemd has not read its messages within 50ms" {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", "/none")
	if err := keepState(nil); err == nil || err.Error() != "NOTIFY_SOCKET /none: no such file or directory" {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := keepState(nil); err != nil {
		t.Error(err)
	}
}

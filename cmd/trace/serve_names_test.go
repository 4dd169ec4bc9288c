//go:build !vm

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// callsInAFunction calls the kernel again and again from a function with a name. libc's function has no frame: its caller is not on the stack.
const callsInAFunction = `#include <unistd.h>
#include <sys/syscall.h>
__attribute__((noinline)) int call(int n) { return n + syscall(SYS_getppid); }
__attribute__((noinline)) int NAME(int n) { for (int i = 0; i < 10; i++) n += call(n); return n + 1; }
int main(void) { for (int n = 1;; usleep(1000)) n = NAME(n) % 7; }
`

// callerIn compiles callsInAFunction, with other sections added to it.
func callerIn(t *testing.T, dir, name string, sections map[string][]byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	source := path + ".c"
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(callsInAFunction, "NAME", name+"_function")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", path, source).CombinedOutput(); err != nil {
		t.Skipf("needs gcc: %v: %s", err, out)
	}
	for section, data := range sections {
		file := path + section
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("objcopy", "--add-section", section+"="+file, path).CombinedOutput(); err != nil {
			t.Skipf("needs objcopy: %v: %s", err, out)
		}
	}
	return path
}

// startAs starts a command as a user, until the end of the test.
func startAs(t *testing.T, uid uint32, path string) {
	t.Helper()
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// A program whose line numbers would take gigabytes costs no other program a scrape, a name, or memory, and is named; 64 profiles
// that are taken at the same time cost no scrape either, and SIGTERM ends the service with all of them open.
func TestServeHostileNames(t *testing.T) {
	requireLive(t)
	if os.Geteuid() != 0 {
		t.Skip("starts a process of another user")
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Four million units of 12 bytes, each with an entry that has no attributes.
	unit := binary.LittleEndian.AppendUint32(nil, 8)
	unit = append(unit, 4, 0, 0, 0, 0, 0, 8, 1)
	hostile := callerIn(t, dir, "hostile", map[string][]byte{
		".debug_info": bytes.Repeat(unit, 4<<20), ".debug_abbrev": {1, 0x11, 0, 0, 0, 0}, ".debug_line": make([]byte, 64),
	})
	honest := callerIn(t, dir, "honest", nil)
	s := newService(t, `programs:
  - name: stacks
    program: 'syscall:enter / nr == getppid && (comm == "hostile" || comm == "honest") / { @[comm, ustack] = count() }'
  - name: calls
    program: 'syscall:enter / nr == getppid && comm == "honest" / { @n = count() }'
  - name: names
    program: 'syscall:enter / nr == getppid / { @[comm, uid, cgroup, pod, unit] = count() }'
`)
	startAs(t, 65534, hostile)
	startAs(t, 1000, honest)
	var named []string
	profiles := make(chan error, 1)
	go func() { profiles <- profilesOf(s, 3, &named) }()
	for before := -1; ; time.Sleep(200 * time.Millisecond) {
		began := time.Now()
		status, text := httpGet(s.address, "/metrics")
		now := metricOf(text, "trace_calls_n_total")
		if took := time.Since(began); status != http.StatusOK || int(now) <= before || took > 5*time.Second {
			t.Fatalf("a scrape has status %d after %v, and %v calls after %d", status, took, now, before)
		}
		before = int(now)
		if most := metricOf(text, "trace_names_limit_bytes"); metricOf(text, "trace_names_bytes") > most || most == 0 {
			t.Errorf("names take more than %v bytes", most)
		}
		select {
		case err := <-profiles:
			if err != nil {
				t.Fatal(err)
			}
		default:
			continue
		}
		if left := metricOf(text, "trace_names_left_files_total"); left < 1 {
			_, text = httpGet(s.address, "/metrics")
			if left = metricOf(text, "trace_names_left_files_total"); left < 1 {
				t.Errorf("%v files were left", left)
			}
		}
		break
	}
	for _, want := range []string{"hostile_function", "honest_function"} {
		if !strings.Contains(strings.Join(named, " "), want) {
			t.Errorf("%s is not in a profile: %q", want, named)
		}
	}
	profilesStayOpen(t, s)
	const most = 300 << 10
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak, anon := kilobytes(status, "VmHWM"), kilobytes(status, "RssAnon")
	t.Logf("VmHWM %d kB, RssAnon %d kB", peak, anon)
	if peak == 0 || peak > most || anon > most {
		t.Errorf("VmHWM %d kB, RssAnon %d kB, more than %d", peak, anon, most)
	}
	began := time.Now()
	s.stop(t)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("SIGTERM ended it after %v", took)
	}
	log, err := os.ReadFile(s.log)
	if n := bytes.Count(log, []byte("functions may lack names: "+hostile)); err != nil || n != 1 {
		t.Errorf("%d lines about %s: %v", n, hostile, err)
	}
}

// profilesStayOpen asks for 64 profiles of five minutes, and scrapes while those that have a room are taken.
func profilesStayOpen(t *testing.T, s *service) {
	t.Helper()
	const asked = 64
	answers := make(chan int, asked)
	for range asked {
		go func() {
			status, _ := httpGet(s.address, "/profile?program=stacks&seconds=300")
			answers <- status
		}()
	}
	refused := 0
	for began := time.Now(); refused < asked-4; refused++ {
		select {
		case status := <-answers:
			if status != http.StatusServiceUnavailable {
				t.Fatalf("a profile of five minutes has status %d after %v", status, time.Since(began))
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d profiles are refused", refused, asked)
		}
	}
	before := -1.0
	for range 20 {
		status, text := httpGet(s.address, "/metrics")
		now := metricOf(text, "trace_calls_n_total")
		if status != http.StatusOK || now <= before {
			t.Errorf("beside %d profiles a scrape has status %d, and %v calls after %v", asked, status, now, before)
		}
		before = now
		if status, text := httpGet(s.address, "/-/ready"); status != http.StatusOK {
			t.Errorf("beside %d profiles /-/ready has status %d: %s", asked, status, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// profilesOf takes profiles, and adds the functions in them.
func profilesOf(s *service, n int, named *[]string) error {
	for range n {
		status, text := httpGet(s.address, "/profile?program=stacks&seconds=1")
		if status != http.StatusOK {
			return fmt.Errorf("profile: %d %s", status, text)
		}
		p, err := profile.ParseData([]byte(text))
		if err != nil {
			return err
		}
		for _, f := range p.Function {
			*named = append(*named, f.Name)
		}
	}
	return nil
}

// metricOf returns the value of a metric without labels, 0 if it is not there.
func metricOf(text, name string) float64 {
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(found[1], 64)
	return v
}

// kilobytes returns a line of /proc/PID/status.
func kilobytes(status []byte, name string) (n int) {
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
	if found != nil {
		n, _ = strconv.Atoi(string(found[1]))
	}
	return n
}

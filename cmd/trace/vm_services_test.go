//go:build vm

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bootSystemd makes a root file system a container and starts systemd in it, in a cgroup of its own. The network is this machine's. Devices are
// those that systemd needs.
const bootSystemd = `
	mkdir -p /sys/fs/cgroup/services
	echo $$ >/sys/fs/cgroup/services/cgroup.procs
	exec unshare --mount --pid --fork --cgroup --uts --ipc --kill-child sh -euc '
		cd "$1"
		mount --make-rprivate /
		mount --rbind . .
		cd "$1"
		mount -t proc proc proc
		mount -t sysfs sys sys
		mount -t cgroup2 none sys/fs/cgroup
		mount -t tmpfs none run
		mount -t tmpfs none tmp
		mount -t tmpfs none dev
		for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
		mkdir -p dev/pts dev/shm old
		mount -t devpts none dev/pts
		ln -s pts/ptmx dev/ptmx
		pivot_root . old
		umount -l /old
		exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd' sh "$1"`

// systemd is the process 1 of a container, as this machine numbers it.
type systemd struct{ pid string }

func startSystemd(t *testing.T, root string) systemd {
	t.Helper()
	unshare := exec.Command("sh", "-euc", bootSystemd, "sh", root)
	unshare.Stderr = os.Stderr
	if err := unshare.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unshare.Process.Kill()
		unshare.Wait()
	})
	var s systemd
	waitLonger(t, "systemd", func() bool {
		child, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", unshare.Process.Pid))
		s.pid = strings.TrimSpace(string(child))
		comm, _ := os.ReadFile("/proc/" + s.pid + "/comm")
		return string(comm) == "systemd\n"
	})
	return s
}

// run runs a script in the container.
func (s systemd) run(script string) (string, error) {
	out, err := exec.Command("nsenter", "-t", s.pid, "-m", "-p", "-C", "-u", "-i", "sh", "-c", script).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (s systemd) must(t *testing.T, script string) string {
	t.Helper()
	out, err := s.run(script)
	if err != nil {
		log, _ := s.run("journalctl --no-pager -n 50 -u trace-loader -u trace-web")
		t.Fatalf("%s: %v\n%s\n%s", script, err, out, log)
	}
	return out
}

// status returns lines of /proc/PID/status of a service.
func (s systemd) status(t *testing.T, service, lines string) string {
	t.Helper()
	return strings.Join(strings.Fields(s.must(t, fmt.Sprintf("grep -E '^(%s):' /proc/$(systemctl show -p MainPID --value %s)/status", lines, service))), " ")
}

// scrape returns what trace-web answers.
func scrape(path string) (status int, text string) {
	r, err := http.Get("http://127.0.0.1:9935" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	data, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(data)
}

// sumOf returns the sum of all series of a metric.
func sumOf(t *testing.T, metric string) (sum float64) {
	t.Helper()
	_, text := scrape("/metrics")
	for _, m := range regexp.MustCompile(`(?m)^`+metric+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		var v float64
		fmt.Sscan(m[1], &v)
		sum += v
	}
	return sum
}

// waitLonger is for what systemd does: with an emulated CPU it takes a minute to boot.
func waitLonger(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 3 minutes: %s", what)
		}
	}
}

func waitForReady(t *testing.T) {
	t.Helper()
	waitLonger(t, "all programs", func() bool { status, _ := scrape("/-/ready"); return status == http.StatusOK })
}

// systemd installs, starts, reloads, restarts and stops the services of the package. Each has the capabilities that it needs, and no others, and
// all programs of the default configuration count.
func TestVMServices(t *testing.T) {
	root, err := filepath.Abs("../../.vmtest/systemd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "lib/systemd/systemd")); err != nil {
		t.Skip("needs Debian's systemd, which .ci/setup systemd installs")
	}
	sh(t, "cp ../../.vmtest/trace_1_*.deb %s/trace.deb; chroot %[1]s dpkg --force-unsafe-io -i trace.deb; chroot %[1]s systemctl mask -q getty.target", root)
	s := startSystemd(t, root)
	waitForReady(t)
	for service, want := range map[string]string{
		"trace-loader": "CapPrm: 000000c400200000 CapEff: 000000c400200000 CapBnd: 000000c400200000 NoNewPrivs: 1 Seccomp: 2",
		"trace-web":    "CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2",
	} {
		if got := s.status(t, service, "CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp"); got != want {
			t.Errorf("%s: got %s, want %s", service, got, want)
		}
		if got := s.status(t, service, "Uid"); strings.HasPrefix(got, "Uid: 0 ") {
			t.Errorf("%s runs as root", service)
		}
	}
	const commands = `trace_nvme_command_seconds_count`
	before := sumOf(t, commands)
	sh(t, "dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=20 iflag=direct status=none; ibv_rc_pingpong -d rxe0 -g 1 -n 5 >/dev/null & sleep 3; ibv_rc_pingpong -d rxe0 -g 1 -n 5 10.9.0.1 >/dev/null; wait")
	if n := sumOf(t, commands) - before; n < 20 {
		t.Errorf("%v NVMe commands are counted, 20 were sent", n)
	}
	for _, metric := range []string{"trace_rdma_call_seconds_count", "trace_host_block_seconds_count", "trace_host_runq_seconds_count"} {
		if sumOf(t, metric) == 0 {
			t.Errorf("%s is 0", metric)
		}
	}

	// A reload and a restart keep what was counted.
	const reloaded = "trace_config_last_reload_timestamp_seconds"
	at, before := sumOf(t, reloaded), sumOf(t, commands)
	s.must(t, "systemctl reload trace-loader")
	waitLonger(t, "the reload", func() bool { return sumOf(t, reloaded) > at })
	if n := sumOf(t, commands); n < before {
		t.Errorf("%v commands after a reload, %v before", n, before)
	}

	s.must(t, "systemctl restart trace-loader")
	waitForReady(t)
	if n := sumOf(t, commands); n < before {
		t.Errorf("%v commands after a restart, %v before", n, before)
	}

	s.must(t, `install -D -t /etc/systemd/system/trace-loader.service.d /usr/share/trace/ustack.conf
		cat >/etc/trace/trace.yaml <<-END
			programs: [{name: calls, program: 'syscall:enter / nr == getppid / { @[ustack, kstack] = count() } syscall:enter / nr == getppid / { @n = count() }'}]
		END
		systemctl daemon-reload && systemctl restart trace-loader`)
	waitLonger(t, "the program of the new configuration", func() bool { return sumOf(t, "trace_program_up") == 1 && sumOf(t, commands) == 0 })
	if got, want := s.status(t, "trace-loader", "CapEff"), "CapEff: 000000c400280004"; got != want {
		t.Errorf("with ustack.conf: got %s, want %s", got, want)
	}
	for range 50 {
		os.Getppid()
	}
	if n := sumOf(t, "trace_calls_n_total"); n < 50 {
		t.Errorf("%v calls are counted, 50 were made", n)
	}

	began := time.Now()
	s.must(t, "systemctl stop trace-loader")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the services took %v to stop", took)
	}
	if got, want := s.must(t, "systemctl show -p ActiveState -p Result --value trace-loader trace-web | paste -sd' '"), "success inactive  success inactive"; got != want {
		t.Errorf("after the stop: got %s, want %s", got, want)
	}
}

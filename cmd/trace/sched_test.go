package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What threads wait for a CPU, more than there are CPUs, is what the kernel counts, to the nanosecond, and so is how often they leave it.
func TestScheduler(t *testing.T) {
	requireLive(t)
	checkScheduler(t, false)
}

// The kernel shows no stack of user space of a task that is not the current one.
func TestUstackOfAnotherTask(t *testing.T) {
	out, err := exec.Command("trace", "--explain", "sched:offcpu { @[ustack] = count() }").CombinedOutput()
	for _, want := range []string{"the kernel does not show the stack of user space of the task of sched:offcpu, as it is not the current one",
		"help: kstack is known; sched:switch has both of a task that leaves its CPU"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// checkScheduler compares what is seen of threads with what the kernel counts. Some machines hide what certain processes do, and with it who comes
// after them: unless the machine is open, some returns may be missing.
func checkScheduler(t *testing.T, open bool) {
	t.Helper()
	var threads []waited
	sums := sumsDuring(t, `sched:runq / comm startsWith "wait" && latency != nil / { @runq[comm] = sum(latency) }
sched:offcpu / comm startsWith "wait" && runq != nil / { @ready[comm] = sum(runq) }
sched:runq / comm startsWith "wait" && latency == nil / { @slept[comm] = count() }
sched:offcpu / comm startsWith "wait" && state == RUNNING / { @cameForced[comm] = count() }
sched:offcpu / comm startsWith "wait" && state != RUNNING / { @came[comm] = count() }
sched:switch / comm startsWith "wait" && state == RUNNING / { @forced[comm] = count() }
sched:switch / comm startsWith "wait" && state != RUNNING / { @left[comm] = count() }
sched:migrate / comm startsWith "wait" / { @moved[comm] = count() }`, func() {
		var all []chan waited
		for range 2*runtime.NumCPU() + 1 {
			one := make(chan waited)
			go waits(time.Second, one)
			all = append(all, one)
		}
		for _, one := range all {
			threads = append(threads, <-one)
		}
	}, "-p", fmt.Sprint(os.Getpid()))
	for _, w := range threads {
		sum := func(of string) (sum uint64) {
			for _, name := range w.names {
				sum += sums[of][name]
			}
			return sum
		}
		seen := account{sum("@runq"), sum("@left"), sum("@forced"), sum("@moved")}
		back := account{sum("@ready"), sum("@came"), sum("@cameForced"), sum("@moved")}
		if !open && seen.delay <= w.delay && back.delay <= w.delay && back.left <= w.left && back.forced <= w.forced {
			seen.delay, back = w.delay, w.account
		}
		// The kernel counts some sleep, too.
		if sum("@slept") > 0 && seen.delay <= w.delay && back.delay <= w.delay {
			seen.delay, back.delay = w.delay, w.delay
		}
		if w.err != nil || w.delay == 0 || w.left == 0 || seen != w.account || back != w.account {
			t.Errorf("%v: the kernel counts %+v of thread %s, its switches are %+v and %+v: %v", w.names, w.account, w.names[0], seen, back, w.err)
		}
	}
}

// Since 6.12 the kernel counts sleep of a thread as waiting for a CPU, if the thread is moved to another one as it falls asleep.
func TestSleepIsNoWait(t *testing.T) {
	requireLive(t)
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU")
	}
	checkSleeper(t)
}

func checkSleeper(t *testing.T) {
	t.Helper()
	var s slept
	sums := sumsDuring(t, `sched:runq / comm == "sleeper" && latency != nil / { @waited[comm] = sum(latency) }
sched:runq / comm == "sleeper" && latency == nil / { @unknown[comm] = count() }
sched:offcpu / comm == "sleeper" && runq != nil / { @ready[comm] = sum(runq) }
sched:offcpu / comm == "sleeper" && runq == nil / { @unknownReady[comm] = count() }`, func() { s = sleepMoved() }, "-p", fmt.Sprint(os.Getpid()))
	sum := func(of string) uint64 { return sums[of]["sleeper"] }
	waited, ready, unknown, unknownReady := sum("@waited"), sum("@ready"), sum("@unknown"), sum("@unknownReady")
	t.Logf("%+v; trace: waited %d and %d, unknown %d and %d", s, waited, ready, unknown, unknownReady)
	switch {
	case s.err != nil:
		t.Fatal(s.err)
	case s.times == 0 && unknown == 0:
		t.Skip("the kernel has counted no sleep")
	}
	if max(waited, ready) > s.delay-s.counted || min(unknown, unknownReady) < s.times || waited == 0 {
		t.Error("sleep is waiting")
	}
}

// slept is how often and for how long the kernel has counted sleep as waiting, and all that it has counted, in ns.
type slept struct {
	times, counted, delay uint64
	err                   error
}

// sleepMoved makes a thread fall asleep, after it had more than its share of a CPU, and moves it to another one.
func sleepMoved() (s slept) {
	const pause = 100 * time.Millisecond
	onCPU := func(tid, cpu int) {
		var only unix.CPUSet
		only.Set(cpu)
		_ = unix.SchedSetaffinity(tid, &only) // it may be offline
	}
	spin := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
		}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // has the CPU, too
		runtime.LockOSThread()
		defer close(ended)
		onCPU(0, 0)
		for {
			select {
			case <-end:
				return
			default:
				spin(time.Millisecond)
			}
		}
	}()
	asleep := make(chan int)
	go func() { // falls asleep
		runtime.LockOSThread()
		defer close(asleep)
		own, err := openAccount()
		if err = errors.Join(err, os.WriteFile("/proc/thread-self/comm", []byte("sleeper"), 0o666)); err != nil {
			s.err = err
			return
		}
		defer own.close()
		first, _ := own.read()
		for range 40 {
			onCPU(0, 0)
			spin(4 * time.Millisecond)
			before, e1 := own.read()
			began := time.Now()
			asleep <- unix.Gettid()
			sleep := unix.NsecToTimespec(int64(pause))
			_ = unix.Nanosleep(&sleep, nil) // a signal may end it
			after, e2 := own.read()
			s.err = errors.Join(s.err, e1, e2)
			if waited := after.delay - before.delay; waited > uint64(time.Since(began)-pause/2) {
				s.times++
				s.counted += uint64(pause / 2)
			}
			s.delay = after.delay - first.delay
		}
	}()
	for tid := range asleep {
		spin(300 * time.Microsecond)
		onCPU(tid, 1)
	}
	close(end)
	<-ended
	return s
}

// sumsDuring are the maps of a program during some work.
func sumsDuring(t *testing.T, program string, work func(), args ...string) map[string]map[string]uint64 {
	t.Helper()
	cmd := exec.Command("trace", append(args, "-f", "json", program)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(messages)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "Attached") {
		t.Fatalf("%v: %s", err, line)
	}
	work()
	stopped := cmd.Process.Signal(syscall.SIGINT)
	rest, err := io.ReadAll(lines)
	if err := errors.Join(stopped, err, cmd.Wait()); err != nil || len(rest) > 0 {
		t.Errorf("%v: %s", err, rest)
	}
	return sumsOf(t, &out)
}

// sumsOf reads the maps of the output.
func sumsOf(t *testing.T, out io.Reader) map[string]map[string]uint64 {
	t.Helper()
	sums := map[string]map[string]uint64{}
	for lines := json.NewDecoder(out); ; {
		var line struct {
			Type string
			Data json.RawMessage
		}
		err := lines.Decode(&line)
		if err == io.EOF {
			return sums
		}
		if err != nil {
			t.Fatal(err)
		}
		if line.Type != "map" {
			continue
		}
		if err := json.Unmarshal(line.Data, &sums); err != nil {
			t.Fatal(err)
		}
	}
}

// account is what the kernel counts of a thread: ns that it waited for a CPU, how often it left one by itself, how often it had to, and how
// often it was moved to another one.
type account struct{ delay, left, forced, moved uint64 }

// waited is what the kernel counts of a thread while it has one of the names.
type waited struct {
	names []string
	account
	err error
}

// waits works and sleeps in turn on a thread of its own.
func waits(d time.Duration, out chan<- waited) {
	runtime.LockOSThread() // the thread ends with its name
	own, err := openAccount()
	if err != nil {
		out <- waited{err: err}
		return
	}
	defer own.close()
	tid := unix.Gettid()
	// The readings before and after the change of the name agree: the thread did not leave the CPU in between.
	renamed := func(word string) (names []string, after account, err error) {
		for i := 0; i < 1000; i++ {
			name := fmt.Sprintf("%s%d.%d", word, tid%100000, i)
			before, e1 := own.read()
			e2 := os.WriteFile("/proc/thread-self/comm", []byte(name), 0o666)
			after, e3 := own.read()
			names = append(names, name)
			if err := errors.Join(e1, e2, e3); err != nil || before == after {
				return names, after, err
			}
		}
		return names, account{}, errors.New("the thread waits all the time")
	}
	first, before, e1 := renamed("wait")
	stop := make(chan struct{})
	go move(tid, stop)
	defer close(stop)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Microsecond) {
		for pause := time.Now().Add(2 * time.Millisecond); time.Now().Before(pause); {
		}
	}
	last, after, e2 := renamed("waited")
	// What it waited while it tried in vain to take its last name counts, too.
	spent := account{after.delay - before.delay, after.left - before.left, after.forced - before.forced, after.moved - before.moved}
	out <- waited{append(first[len(first)-1:], last[:len(last)-1]...), spent, errors.Join(e1, e2)}
}

// move moves a thread to another CPU again and again, also while it waits for one.
func move(tid int, stop chan struct{}) {
	for cpu := 0; ; cpu++ {
		var only unix.CPUSet
		only.Set(cpu % runtime.NumCPU())
		_ = unix.SchedSetaffinity(tid, &only) // a CPU may be offline
		select {
		case <-stop:
			return
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// accountFiles are where the kernel shows what it counts of a thread: the second number of /proc/TID/schedstat (proc_pid_schedstat of
// fs/proc/base.c), two lines of /proc/TID/status, and one of /proc/TID/sched.
type accountFiles struct{ schedstat, status, sched *os.File }

func openAccount() (a accountFiles, err error) {
	var e1, e2, e3 error
	a.schedstat, e1 = os.Open("/proc/thread-self/schedstat")
	a.status, e2 = os.Open("/proc/thread-self/status")
	a.sched, e3 = os.Open("/proc/thread-self/sched")
	return a, errors.Join(e1, e2, e3)
}

func (a accountFiles) close() {
	for _, f := range []*os.File{a.schedstat, a.status, a.sched} {
		f.Close()
	}
}

func (a accountFiles) read() (is account, err error) {
	var ran uint64
	_, e1 := fmt.Sscan(after(a.schedstat, ""), &ran, &is.delay)
	_, e2 := fmt.Sscanf(after(a.status, "\nvoluntary_ctxt_switches:"), "%d\nnonvoluntary_ctxt_switches: %d", &is.left, &is.forced)
	_, e3 := fmt.Sscanf(after(a.sched, "\nse.nr_migrations"), " : %d", &is.moved)
	return is, errors.Join(e1, e2, e3)
}

// after returns what follows a text in a file.
func after(f *os.File, text string) string {
	var all [4096]byte
	n, _ := f.ReadAt(all[:], 0)
	_, rest, _ := strings.Cut(string(all[:n]), text)
	return rest
}

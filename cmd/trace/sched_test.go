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

// What threads wait for a CPU, more than there are CPUs, is what the kernel counts, to the nanosecond.
func TestRunq(t *testing.T) {
	requireLive(t)
	checkWaits(t)
}

func checkWaits(t *testing.T) {
	t.Helper()
	cmd := exec.Command("trace", "-f", "json", "-p", fmt.Sprint(os.Getpid()), `sched:runq / comm startsWith "wait" / { @[comm] = sum(latency) }`)
	var out bytes.Buffer
	cmd.Stdout = &out
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(messages).ReadString('\n'); err != nil || !strings.Contains(line, "Attached") {
		t.Fatalf("%v: %s", err, line)
	}
	var all []chan waited
	for range 2*runtime.NumCPU() + 1 {
		one := make(chan waited)
		go waits(time.Second, one)
		all = append(all, one)
	}
	var threads []waited
	for _, one := range all {
		threads = append(threads, <-one)
	}
	if err := errors.Join(cmd.Process.Signal(syscall.SIGINT), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	sums := sumsOf(t, &out)
	for _, w := range threads {
		var sum uint64
		for _, name := range w.names {
			sum += sums[name]
		}
		if w.err != nil || w.delay == 0 || sum != w.delay {
			t.Errorf("%v: thread %s waited for %d ns, the kernel counts %d: %v", w.names, w.names[0], sum, w.delay, w.err)
		}
	}
}

// sumsOf reads the map @ of the output.
func sumsOf(t *testing.T, out io.Reader) map[string]uint64 {
	t.Helper()
	for lines := json.NewDecoder(out); ; {
		var line struct {
			Type string
			Data json.RawMessage
		}
		var maps map[string]map[string]uint64
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Type != "map" {
			continue
		}
		if err := json.Unmarshal(line.Data, &maps); err != nil {
			t.Fatal(err)
		}
		return maps["@"]
	}
}

// waited is what the kernel counts of a thread while it has one of the names.
type waited struct {
	names []string
	delay uint64
	err   error
}

// waits works and sleeps in turn on a thread of its own.
func waits(d time.Duration, out chan<- waited) {
	runtime.LockOSThread() // the thread ends with its name
	stat, err := os.Open("/proc/thread-self/schedstat")
	if err != nil {
		out <- waited{err: err}
		return
	}
	defer stat.Close()
	tid := unix.Gettid()
	// The reading before and after the change of the name agree: the thread did not wait in between.
	renamed := func(word string) (names []string, delay uint64, err error) {
		for i := 0; i < 1000; i++ {
			name := fmt.Sprintf("%s%d.%d", word, tid%100000, i)
			before, e1 := delayOf(stat)
			e2 := os.WriteFile("/proc/thread-self/comm", []byte(name), 0o666)
			after, e3 := delayOf(stat)
			names = append(names, name)
			if err := errors.Join(e1, e2, e3); err != nil || before == after {
				return names, after, err
			}
		}
		return names, 0, errors.New("the thread waits all the time")
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
	out <- waited{names: append(first[len(first)-1:], last[:len(last)-1]...), delay: after - before, err: errors.Join(e1, e2)}
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

// delayOf reads what a thread has waited for a CPU, in ns: the second number of /proc/TID/schedstat, proc_pid_schedstat of fs/proc/base.c.
func delayOf(stat *os.File) (delay uint64, err error) {
	var text [128]byte
	n, err := stat.ReadAt(text[:], 0)
	if n == 0 {
		return 0, err
	}
	var ran uint64
	_, err = fmt.Sscan(string(text[:n]), &ran, &delay)
	return delay, err
}

//go:build linux

package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trace"
	"trace/lang/metrics/family"
)

// recorded records what a program selects, until the result is called. It returns the host that plays it.
func recorded(t *testing.T, program string) (end func() *trace.Host) {
	t.Helper()
	host, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "events.rec"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() {
		if err := host.Record(ctx, file, program); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the recording has its header", func() bool {
		info, err := file.Stat()
		return err == nil && info.Size() > 0
	})
	return func() *trace.Host {
		cancel()
		over.Wait()
		played, err := trace.OpenRecording(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { played.Close(); host.Close(); file.Close() })
		return played
	}
}

// sleep sleeps in a thread of its own, as no thread of Go does. It returns the thread, and when it slept.
func sleep(d time.Duration) (tid uint32, began, ended time.Time) {
	done := make(chan struct{})
	go func() { // its thread ends with it
		runtime.LockOSThread()
		defer close(done)
		nap := unix.NsecToTimespec(int64(d))
		tid, began = uint32(unix.Gettid()), time.Now()
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &nap, nil)
		ended = time.Now()
	}()
	<-done
	return tid, began, ended
}

// stamped is how far apart two programs may stamp an event that both see, and their clocks of the day be.
const stamped = 10 * time.Millisecond

// The exemplar in the top bucket names an event that a recording made beside has.
func TestExemplars(t *testing.T) {
	selected := fmt.Sprintf("syscall:exit / nr == clock_nanosleep && pid == %s", pid())
	s, _ := running(t, fmt.Sprintf("programs: [{name: naps, program: '%s / { @[nr] = hist(latency); @q = quantile(latency, 99); @l = lhist(latency, 0, 100s, 100s) }'}]", selected))
	attached(t, s)
	end := recorded(t, selected+" /")
	for range 20 {
		sleep(time.Millisecond)
	}
	const long = 500 * time.Millisecond // longer than a short one takes on a busy machine
	tid, began, ended := sleep(long)
	for range 20 {
		sleep(time.Millisecond)
	}
	for _, name := range []string{"trace_naps_seconds", "trace_naps_q_seconds", "trace_naps_l_seconds"} {
		all := series(t, s, name).Buckets.Exemplars
		if len(all) == 0 {
			t.Fatalf("%s has no exemplars", name)
		}
		top := all[len(all)-1]
		if name == "trace_naps_l_seconds" { // all values are in one bucket, whose last one is another nap
			if top.TID == tid || !top.Time.After(ended) {
				t.Errorf("%s: %+v is not of the last nap", name, top)
			}
			continue
		}
		if top.TID != tid || top.Time.Before(began) || top.Time.After(ended.Add(stamped)) || top.Value < long.Seconds()/2 || top.Value > 2*ended.Sub(began).Seconds() {
			t.Errorf("%s: %+v, want thread %d between %v and %v", name, top, tid, began, ended)
		}
	}
	top := series(t, s, "trace_naps_seconds").Buckets.Exemplars
	inRecording(t, end(), top[len(top)-1])
}

// inRecording fails unless a recording has the event of an exemplar.
func inRecording(t *testing.T, host *trace.Host, e family.Exemplar) {
	t.Helper()
	program, err := host.Compile("events", fmt.Sprintf("syscall:exit / tid == %d /", e.TID), nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Start(t.Context(), trace.Records())
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	n := 0
	for r, err := range run.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		took, _ := r.Field("latency").(time.Duration)
		if apart := r.Time.Sub(e.Time).Abs(); apart > stamped || took.Seconds() < e.Value/2 || took.Seconds() > 2*e.Value {
			t.Errorf("the recording has %v of the thread at %v, %v from the exemplar %+v", took, r.Time, apart, e)
		} else {
			t.Logf("the same event %v apart", apart)
		}
		n++
	}
	if n != 1 {
		t.Errorf("the recording has %d events of thread %d, want 1", n, e.TID)
	}
}

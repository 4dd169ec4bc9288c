package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settle is how long the bench waits after something was attached or detached.
const settle = 200 * time.Millisecond

// A bench measures the workloads, each with every peer in turn.
type bench struct {
	loop     *loop
	loads    int            // fresh loads of each workload by each peer
	window   time.Duration  // of a flood
	only     *regexp.Regexp // names of the workloads that are wanted
	progress io.Writer
	found    map[key]*figures
	untraced []float64 // ns of a call
	pair     []float64 // ns of a post and its poll, without a tool
	repeated int       // loads, because the machine was disturbed
	remarks  []string
}

// key names what was measured.
type key struct{ workload, peer string }

// figures are what was measured: a value for each load.
type figures struct {
	added     []float64 // ns that a call takes longer
	accounted []float64 // ns per call by the kernel's own account
	start     []float64 // ms
	peak      []float64 // MB
	delivered []float64 // lines, or events of the flood's calls, per second
	made      []float64 // calls of the flood per second
	lost      []float64 // percent of the calls that were not printed
	attached  string    // the tool's own message
	failed    bool      // not tried again
}

// of returns the figures of a workload and a peer.
func (b *bench) of(w workload, peer string) *figures {
	k := key{w.name, peer}
	if b.found[k] == nil {
		b.found[k] = new(figures)
	}
	return b.found[k]
}

// inTurn measures once for each peer that supports the workload; each round begins with another peer.
func (b *bench) inTurn(ctx context.Context, w workload, round int, peers []peer, once measure) error {
	if !b.only.MatchString(w.name) {
		return nil
	}
	for i := range peers {
		p := peers[(i+round)%len(peers)]
		f := b.of(w, p.name)
		if p.program(w) == "" || f.failed {
			continue
		}
		result, err := once(ctx, w, p, f)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			f.failed = true
			b.remark(w, p, "failed in round %d: %v", round+1, err)
			continue
		}
		fmt.Fprintf(b.progress, "bench: %d/%d %s, %s: %s\n", round+1, b.loads, w.name, p.name, result)
	}
	return nil
}

// measure measures one fresh load and adds the result to the figures. It returns the main figure as text.
type measure func(context.Context, workload, peer, *figures) (string, error)

// cost measures what a workload adds to a call. It repeats if the machine was disturbed.
func (b *bench) cost(ctx context.Context, w workload, p peer, f *figures) (string, error) {
	l, err := b.load(ctx, w, p)
	for try := 0; err == nil && l.disturbed() && try < retries; try++ {
		b.repeated++
		l, err = b.load(ctx, w, p)
	}
	if err != nil {
		return "", err
	}
	b.untraced = append(b.untraced, l.untraced())
	f.added = append(f.added, l.added())
	f.accounted = append(f.accounted, l.accounted)
	if l.start > 0 {
		f.start = append(f.start, float64(l.start)/float64(time.Millisecond))
		f.peak = append(f.peak, megabytes(l.peak))
		f.attached, _, _ = strings.Cut(lastAbout("attached", l.said), ". ")
		b.checkCount(w, p, l)
	}
	return fmt.Sprintf("%.1f ns", l.added()), nil
}

// retries is how often a disturbed load is repeated.
const retries = 5

// A load is one run of a program while the loop makes calls.
type load struct {
	outcome
	before, traced, after float64 // ns of a call: without the program, with it, and without it again
	accounted             float64
	made                  int64 // calls while it was attached
	tid                   int   // of the thread that made them
	output                string
}

func (l load) untraced() float64 { return (l.before + l.after) / 2 }
func (l load) added() float64    { return l.traced - l.untraced() }

// disturbed reports whether the pace of the machine has changed, for example because another tracer started.
func (l load) disturbed() bool {
	return math.Abs(l.before-l.after) > 0.03*min(l.before, l.after)
}

func (b *bench) load(ctx context.Context, w workload, p peer) (load, error) {
	l := load{tid: b.loop.tid}
	time.Sleep(settle)
	l.before = b.loop.cost()
	others, err := loadedPrograms()
	if err != nil {
		return l, err
	}
	var output bytes.Buffer
	program, err := p.attach(ctx, p.program(w), &output)
	if err != nil {
		return l, err
	}
	time.Sleep(settle)
	madeBefore := b.loop.made.Load()
	l.traced = b.loop.cost()
	var accountErr, detachErr error
	l.accounted, accountErr = accounted(b.loop, others)
	l.made = b.loop.made.Load() - madeBefore
	l.outcome, detachErr = program.detach()
	l.output = output.String()
	time.Sleep(settle)
	l.after = b.loop.cost()
	return l, errors.Join(accountErr, detachErr)
}

// checkCount adds a remark if a tool was cheap because it did not count every call.
func (b *bench) checkCount(w workload, p peer, l load) {
	if w.countedAs == "" {
		return
	}
	counted, err := w.counted(l.output, l.tid)
	if err != nil {
		b.remark(w, p, "%v", err)
	} else if counted < l.made {
		b.remark(w, p, "it counted %d of %d calls", counted, l.made)
	}
}

// flood measures how many lines of a flood reach a reader.
func (b *bench) flood(ctx context.Context, w workload, p peer, f *figures) (string, error) {
	time.Sleep(settle)
	lines := newLineCounter(b.loop.tid)
	program, err := p.attach(ctx, p.program(w), lines)
	if err != nil {
		return "", err
	}
	var took time.Duration
	var all, own, made int64
	b.loop.during(func() {
		time.Sleep(settle)
		begin := time.Now()
		all, own, made = -lines.all.Load(), -lines.own.Load(), -b.loop.made.Load()
		time.Sleep(b.window)
		all, own, made = all+lines.all.Load(), own+lines.own.Load(), made+b.loop.made.Load()
		took = time.Since(begin)
	})
	o, err := program.detach()
	if err != nil {
		return "", err
	}
	f.delivered = append(f.delivered, float64(all)/took.Seconds())
	f.lost = append(f.lost, 100*(1-min(1, float64(own)/float64(made))))
	if len(f.delivered) == b.loads {
		b.remark(w, p, "its own word of what it lost in the last run: %s", lastAbout("lost", o.said))
	}
	return fmt.Sprintf("%.2f M lines/s", float64(all)/took.Seconds()/1e6), nil
}

// record measures how many calls of a flood get into a recording. The events' own time decides, so events that wait in buffers at the
// beginning or at the end of the window do not count.
func (b *bench) record(file string, t tool) measure {
	return func(ctx context.Context, w workload, p peer, f *figures) (string, error) {
		time.Sleep(settle)
		program, err := p.attach(ctx, p.program(w), io.Discard)
		if err != nil {
			return "", err
		}
		var begin, end unix.Timespec
		var clockErr error
		var made int64
		b.loop.during(func() {
			time.Sleep(settle)
			clockErr = unix.ClockGettime(unix.CLOCK_BOOTTIME, &begin)
			made = -b.loop.made.Load()
			time.Sleep(b.window)
			made += b.loop.made.Load()
			clockErr = errors.Join(clockErr, unix.ClockGettime(unix.CLOCK_BOOTTIME, &end))
		})
		o, err := program.detach()
		if err := errors.Join(err, clockErr); err != nil {
			return "", err
		}
		within := fmt.Sprintf("%s / tid == %d && nsecs >= %d && nsecs < %d / { @ = count() }", w.trace, b.loop.tid, begin.Nano(), end.Nano())
		out, err := t.command(ctx, "-q", "-r", file, within).Output()
		if err != nil {
			return "", fmt.Errorf("count the recorded events: %w", err)
		}
		var n int64
		if _, err := fmt.Sscanf(string(out), "@: %d", &n); err != nil {
			return "", fmt.Errorf("count the recorded events: %w in %q", err, out)
		}
		seconds := time.Duration(end.Nano() - begin.Nano()).Seconds()
		rate := float64(n) / seconds
		f.delivered, f.made = append(f.delivered, rate), append(f.made, float64(made)/seconds)
		if len(f.delivered) == b.loads {
			b.remark(w, p, "its own word of what it lost in the last run: %s", lastAbout("lost", o.said))
		}
		return fmt.Sprintf("%.2f M events/s", rate/1e6), nil
	}
}

// lastAbout returns the last line of text that contains word.
func lastAbout(word, text string) string {
	last := "none"
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), word) {
			last = strings.TrimSpace(line)
		}
	}
	return last
}

// remark adds a line to the report.
func (b *bench) remark(w workload, p peer, format string, args ...any) {
	text := fmt.Sprintf("%s, %s: %s", w.name, p.name, fmt.Sprintf(format, args...))
	text = strings.Join(strings.Fields(text), " ")
	b.remarks = append(b.remarks, text)
	fmt.Fprintln(b.progress, "bench:", text)
}

func names(peers []peer) []string {
	var all []string
	for _, p := range peers {
		all = append(all, p.name)
	}
	return all
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trace/lang"
	"trace/lang/output"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/recording"
)

// player runs a program on the events of recordings.
type player struct {
	streams
	options
	recording *recording.Recording
	exec      *lang.Run
	out       *stream
	// now is the time in the recording, as nsecs tells it. The live view asks for it, too.
	now atomic.Uint64
	// attached is when all probes were attached, or 0 if that is past or not known.
	attached  uint64
	intervals []interval
	live      *output.Live // nil without --live
	document  *output.Document
	// opened is the time in the recording when it began.
	opened   time.Time
	progress *progress
	// began is when the play began, in real time.
	began   time.Time
	printed uint64
}

// interval is an interval of the program and when it is due next.
type interval struct {
	period time.Duration
	due    uint64
}

// liveFlags say something about this machine, and nothing about recorded events.
var liveFlags = []string{"record", "cmd", "timeout", "btf", "buffer-size", "explain", "no-kernel", "compare"}

// checkReplay refuses flags that a replay would ignore.
func checkReplay(cmd *cobra.Command) error {
	for _, name := range liveFlags {
		if cmd.Flags().Changed(name) {
			return usagef("-r does not use --%s", name)
		}
	}
	return nil
}

// openRecordings opens recordings, whose fields are shown as the catalog says.
func openRecordings(names []string) (*recording.Recording, error) {
	rec, err := recording.Open(names...)
	if err != nil {
		return nil, err
	}
	if err := probes.Describe(rec.Probes()); err != nil {
		return nil, errors.Join(err, rec.Close())
	}
	return rec, nil
}

// runReplay runs a program on recordings.
func runReplay(ctx context.Context, s streams, o options, src source) (err error) {
	rec, err := openRecordings(o.recordings)
	if err != nil {
		return fmt.Errorf("-r: %w", err)
	}
	defer rec.Close()
	if err := rec.CheckOutput(o.output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	program, err := compileRecorded(s, o, src, rec)
	if err != nil || o.debug == "ast" {
		return err
	}
	options := lang.PlanOptions{Recorded: true, Cleared: o.live, MapEntries: o.mapSize, Started: rec.Started(), CPUs: 1, Columns: o.columns()}
	if rec.WithoutStacks() == "" {
		options.RecordedStack = rec.Stack
	}
	plan, err := lang.NewPlan(program, options)
	if err != nil {
		return programError{err}
	}
	p := &player{streams: s, options: o, recording: rec}
	p.now.Store(rec.Started())
	if p.document, err = openDocument(s, o, src, program); err != nil {
		return err
	}
	ctx, release := catchSignals(ctx)
	defer release()
	defer context.AfterFunc(ctx, rec.Interrupt)()
	file, err := openForWriting(ctx, o.output)
	if err != nil {
		return err
	}
	if p.live, err = openLive(s, o, src, program); err != nil {
		return err
	}
	defer p.live.Close()
	p.err = p.live.Through(patiently(ctx, s.err))
	p.progress = newProgress(s, o)
	p.out = newStream(ctx, file, p.progress.before(p.live.Through(s.out)))
	printer := output.NewPrinter(p.document.Through(p.out, p.err, p.live), o.format.Format, rec.Boot().Local())
	p.exec, err = plan.Start(lang.RunOptions{
		Printer: printer, Unshown: p.document != nil, Now: p.now.Load, Context: ctx,
	})
	if err != nil {
		return errors.Join(err, p.out.Close())
	}
	p.opened = p.clock(p.now.Load())
	p.document.Begin(p.exec, p.opened)
	err = p.run(ctx)
	return errors.Join(p.unlessLost(unlessEnough(err)), unlessEnough(p.out.Close()), asked(p.exec), p.verdict(), keep(ctx, p.exec))
}

// unlessLost makes of a damaged file what --strict makes of lost events, and reports it.
func (p *player) unlessLost(err error) error {
	var damaged *recording.CorruptError
	if !p.strict || !errors.As(err, &damaged) {
		return err
	}
	p.note("%v", err)
	return errLost
}

// run plays everything. What was read before an error counts: the maps are printed in any case.
func (p *player) run(ctx context.Context) error {
	p.began = time.Now()
	if err := errors.Join(p.out.begin(), p.exec.Begin()); err != nil {
		return err
	}
	showing, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { printMaps(showing, p.streams, p.exec, p.out) })
	defer shown.Wait()
	defer stop()
	p.attached = p.recording.Attached()
	for _, period := range p.exec.Intervals() {
		if !slices.Contains(p.recording.Intervals(), period) { // else its moments are among the events
			p.intervals = append(p.intervals, interval{period, p.now.Load() + uint64(period)})
		}
	}
	err := p.watched(ctx, func(ctx context.Context) error {
		err := p.play(ctx)
		if unlessEnough(err) != nil || ctx.Err() != nil {
			return err
		}
		if err != nil || p.exec.Stopped() {
			p.intervals = nil // -n or exit() was the end of the run
			if !p.nothingLeft() {
				return err
			}
		}
		_, passErr := p.passTime(ctx, p.recording.Ended())
		return errors.Join(err, passErr)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	p.progress.clear()
	return errors.Join(err, p.exec.End(), p.writeDocument())
}

// nothingLeft tells whether the recording has no more events: it ended for the same reason as its replay.
func (p *player) nothingLeft() bool {
	_, err := p.recording.Next()
	return err == io.EOF
}

// clock is the time of day of a moment of the recording.
func (p *player) clock(nsecs uint64) time.Time {
	return p.recording.Boot().Local().Add(time.Duration(nsecs))
}

// writeDocument writes what is made at the end.
func (p *player) writeDocument() error {
	if p.document == nil {
		return nil
	}
	var hosts, kernels []string
	events, lost := map[string]uint64{}, map[string]uint64{}
	f := output.Facts{Began: p.opened, Ended: p.clock(p.now.Load())}
	for _, info := range p.recording.Info() {
		if !slices.Contains(hosts, info.Host) {
			hosts, kernels = append(hosts, info.Host), append(kernels, info.Kernel)
		}
		for name, n := range info.Events {
			events[name] += n
		}
		for _, l := range info.Losses {
			lost[l.Probe] += l.Lost
		}
		f.Losses = append(f.Losses, lacks(info)...)
	}
	f.Host, f.Kernel = strings.Join(hosts, ", "), strings.Join(kernels, ", ")
	var names []string
	for _, c := range p.exec.Program().Clauses() {
		for _, probe := range c.Probes {
			names = append(names, probe.String())
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f.Probes = append(f.Probes, output.ProbeFact{Name: name, Variant: "recorded", Events: events[name], Lost: lost[name]})
	}
	more, err := mapLossNotes(p.exec)
	if err != nil {
		return err
	}
	f.Losses = append(f.Losses, more...)
	return writeDocument(p.streams, p.document, p.exec, p.out, f)
}

// watched plays while the maps are shown, if they are.
func (p *player) watched(ctx context.Context, play func(context.Context) error) error {
	if p.live == nil {
		return play(ctx)
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.live.Show(ctx, p.exec, p.viewTime, end) })
	err := play(ctx)
	end()
	wg.Wait()
	p.live.Close()
	return err
}

// viewTime is the time of the recording as it passes between two events, too. As fast as possible there is nothing in between.
func (p *player) viewTime() time.Time {
	if p.speed == 0 {
		return p.clock(p.now.Load())
	}
	return p.clock(p.recording.Started() + uint64(float64(time.Since(p.began))*p.speed))
}

// play runs the events until there are no more of them.
func (p *player) play(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%1024 == 0 {
			p.progress.tell(func(took time.Duration) string { return p.told(n, took) })
		}
		if p.exec.Stopped() || n%1024 == 0 && ctx.Err() != nil {
			return nil
		}
		item, err := p.recording.Next()
		if err != nil {
			if err == io.EOF || ctx.Err() != nil {
				return nil // an interrupt ends a wait for what is not written yet
			}
			return err
		}
		if goesOn, err := p.passTime(ctx, item.Time); err != nil || !goesOn {
			return err
		}
		if item.Event == nil {
			p.document.BeforeInterval(p.clock(p.now.Load()))
			if err := p.exec.Interval(item.Interval, item.Time); err != nil {
				return err
			}
			continue
		}
		if err := p.exec.Replay(item.Event, p.countPrinted); err != nil {
			return err
		}
	}
}

// told is the progress: how much of the files was read, and how fast.
func (p *player) told(events int, took time.Duration) string {
	done, all := p.recording.Read()
	return fmt.Sprintf("%d%%, %d events, %.0f events/s", 100*done/max(all, 1), events, float64(events)/took.Seconds())
}

// countPrinted counts an event that was printed.
func (p *player) countPrinted() error {
	p.printed++
	if p.printed == p.count {
		return errEnough
	}
	return nil
}

// passTime lets the time pass, and runs the intervals that become due until then. It returns false if ctx ended first, or the program did.
func (p *player) passTime(ctx context.Context, until uint64) (goesOn bool, err error) {
	for {
		next := -1
		for i, v := range p.intervals {
			if v.due <= until && (next < 0 || v.due < p.intervals[next].due) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		if err := p.runInterval(ctx, next); err != nil || ctx.Err() != nil || p.exec.Stopped() {
			return false, err
		}
	}
	if until > p.now.Load() {
		if !p.wait(ctx, until) {
			return false, nil
		}
		p.document.PassTo(p.clock(until))
		p.now.Store(until)
	}
	return true, p.attach(until)
}

// runInterval runs an interval when it is due, unless ctx ends first.
func (p *player) runInterval(ctx context.Context, i int) error {
	v := p.intervals[i]
	if !p.wait(ctx, v.due) || ctx.Err() != nil {
		return nil
	}
	if err := p.attach(v.due); err != nil {
		return err
	}
	p.now.Store(v.due)
	p.document.BeforeInterval(p.clock(v.due))
	if p.intervals[i].due += uint64(v.period); p.intervals[i].due < v.due { // the end of what nsecs can tell
		p.intervals = slices.Delete(p.intervals, i, i+1)
	}
	return p.exec.Interval(v.period, v.due)
}

// attach tells the program that all probes are attached, once that moment has passed.
func (p *player) attach(now uint64) error {
	if p.attached == 0 || now < p.attached {
		return nil
	}
	attached := p.attached
	p.attached = 0
	return p.exec.Attached(attached)
}

// wait waits for a moment of the recording, if it is played with a speed. It returns false if ctx ended first: then it is now as late as
// the play has come.
func (p *player) wait(ctx context.Context, moment uint64) bool {
	if p.speed == 0 || moment <= p.now.Load() {
		return true
	}
	since := time.Duration(float64(moment-p.recording.Started()) / p.speed)
	left := since - time.Since(p.began)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		reached := p.recording.Started() + uint64(float64(time.Since(p.began))*p.speed)
		p.now.Store(max(p.now.Load(), min(reached, moment)))
		return false
	case <-timer.C:
		return true
	}
}

// lacks says what a recording should have and has not.
func lacks(info recording.Info) []string {
	var lines []string
	for _, l := range info.Losses {
		for _, what := range l.Texts() {
			lines = append(lines, fmt.Sprintf("%s lacks %s, lost when it was recorded", info.Name, what))
		}
	}
	if info.Cut {
		lines = append(lines, info.Name+" was cut off: the recording did not come to its end; what it has is whole")
	}
	return lines
}

// verdict tells what the recordings lack.
func (p *player) verdict() error {
	incomplete := false
	for _, info := range p.recording.Info() {
		for _, line := range lacks(info) {
			p.note("%s", line)
			incomplete = true
		}
	}
	lost, err := tellMaps(p.streams, p.quiet, p.exec)
	if err != nil {
		return err
	}
	if p.strict && (incomplete || lost) {
		return errLost
	}
	return nil
}

// infoCommand says what is in recordings.
func infoCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "info FILE…",
		Short: "say what is in recordings: where and when they were made, which events they have, and what was lost",
		Args:  usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			for i, name := range args {
				if i > 0 {
					fmt.Fprintln(s.out)
				}
				if err := tellInfo(s, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// tellInfo reads a recording to its end and says what it found.
func tellInfo(s streams, name string) error {
	rec, err := recording.Open(name)
	if err != nil {
		return err
	}
	defer rec.Close()
	for err == nil {
		_, err = rec.Next()
	}
	for _, info := range rec.Info() {
		writeInfo(s.out, info)
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// writeInfo prints what a recording says of itself.
func writeInfo(out io.Writer, info recording.Info) {
	var text strings.Builder // a file may come from anywhere
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s:\n", info.Name)
	fmt.Fprintf(w, "  host\t%s, Linux %s %s\n", info.Host, info.Kernel, info.Arch)
	fmt.Fprintf(w, "  program\t%s\n", strings.Join(strings.Fields(info.Program), " "))
	begin := info.Boot.Add(time.Duration(info.Started)).Local()
	fmt.Fprintf(w, "  began\t%s\n", begin.Format("2006-01-02 15:04:05 MST"))
	end := info.Ended
	if info.Cut {
		end = info.Last
	}
	length := max(0, time.Duration(end-info.Started)).Round(time.Millisecond)
	if info.Cut {
		fmt.Fprintf(w, "  length\t%v, then it was cut off\n", length)
	} else {
		fmt.Fprintf(w, "  length\t%v\n", length)
	}
	fmt.Fprintf(w, "  size\t%d bytes, for %d bytes of events\n", info.Bytes, info.RawBytes)
	for _, name := range slices.Sorted(maps.Keys(info.Events)) {
		shown := name
		if name == "profile:hz" && info.SampleRate != 0 {
			shown = fmt.Sprintf("profile:%dhz", info.SampleRate)
		}
		fmt.Fprintf(w, "  %s\t%s\n", shown, plural(info.Events[name], "event"))
	}
	for _, l := range info.Losses {
		for _, what := range l.Texts() {
			fmt.Fprintf(w, "  lost\t%s\n", what)
		}
	}
	w.Flush()
	io.WriteString(out, syntax.Visible(text.String()))
}

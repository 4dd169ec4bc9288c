package trace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"trace"
)

// firstError returns the error of an iteration.
func firstError[T any](events iter.Seq2[T, error]) error {
	for _, err := range events {
		if err != nil {
			return err
		}
	}
	return nil
}

func eventsOf[T any](t *testing.T, program string) error {
	t.Helper()
	return firstError(trace.Events[T](t.Context(), open(t, flowsRecording), program))
}

// A struct that does not fit is refused, with the reason and what to do, and its place in the program where there is one.
func TestEventsRefuses(t *testing.T) {
	const one = "ib:modify_qp"
	type inner struct {
		PID uint32 `trace:"pid"`
	}
	for want, err := range map[string]error{
		"events: int is not a struct":                                  eventsOf[int](t, one),
		"events: no field of struct {} has a tag like `trace:\"pid\"`": eventsOf[struct{}](t, one),
		"has a tag, but is not exported": eventsOf[struct {
			x int `trace:"pid"`
		}](t, one),
		"has an empty tag: write `trace:\"pid\"`": eventsOf[struct {
			X int `trace:""`
		}](t, one),
		"is in an embedded pointer: embed the struct itself": eventsOf[struct{ *inner }](t, one),
		"program:1:1: field X of the struct: no field pidd in ib:modify_qp": eventsOf[struct {
			X uint32 `trace:"pidd"`
		}](t, one),
		"help: did you mean \"pid\"?": eventsOf[struct {
			X uint32 `trace:"pidd"`
		}](t, one),
		"pid of ib:modify_qp is a number of the type uint32: field X has the type uint16": eventsOf[struct {
			X uint16 `trace:"pid"`
		}](t, one),
		"is a number of the type uint32: field X has the type int32": eventsOf[struct {
			X int32 `trace:"pid"`
		}](t, one),
		"is a number of the type uint32: field X has the type time.Duration": eventsOf[struct {
			X time.Duration `trace:"pid"`
		}](t, one),
		"is a number of the type uint32: field X has the type string": eventsOf[struct {
			X string `trace:"pid"`
		}](t, one),
		"help: use time.Duration, or uint64": eventsOf[struct {
			X trace.Bytes `trace:"latency"`
		}](t, one),
		"help: use trace.Cgroup": eventsOf[struct {
			X bool `trace:"cgroup"`
		}](t, one),
		"help: use netip.Addr": eventsOf[struct {
			X *string `trace:"sgid"`
		}](t, one),
		"help: use trace.Name, or uint": eventsOf[struct {
			X *bool `trace:"qp.state"`
		}](t, one),
		"help: use string": eventsOf[struct {
			X int `trace:"comm"`
		}](t, one),
		"qp.num may be absent from events of ib:modify_qp: field X has the type uint32, which cannot be": eventsOf[struct {
			X uint32 `trace:"qp.num"`
		}](t, one),
		"help: use *uint32 or trace.Optional[uint32]": eventsOf[struct {
			X uint32 `trace:"qp.num"`
		}](t, one),
		"program:1:15: attr_mask may be absent from events of ib:destroy_qp": eventsOf[struct {
			X uint32 `trace:"attr_mask"`
		}](t, "ib:modify_qp; ib:destroy_qp"),
		"time is a time.Time: field X is a uint64": eventsOf[struct {
			X uint64 `trace:"time"`
		}](t, one),
		"probe is a string: field X is a int": eventsOf[struct {
			X int `trace:"probe"`
		}](t, one),
		"Events takes only programs that select events": eventsOf[inner](t, "ib:modify_qp { @ = count() }"),
		"help: remove the body, or use Host.Compile":    eventsOf[inner](t, "begin { printf(\"x\") } ib:modify_qp"),
		"no probe ib:modify_qpp":                        eventsOf[inner](t, "ib:modify_qpp"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		var mistake *trace.Error
		if err != nil && strings.Contains(err.Error(), "program:") != errors.As(err, &mistake) {
			t.Errorf("%v is no *Error, or should be none", err)
		}
	}
}

// Each kind of value has a Go type that holds it. An absent value leaves the zero value.
func TestEventsValues(t *testing.T) {
	type event struct {
		Time    time.Time                `trace:"time"`
		Probe   string                   `trace:"probe"`
		PID     int                      `trace:"pid"`
		QP      *uint64                  `trace:"qp.num"`
		Comm    string                   `trace:"comm"`
		Type    trace.Name               `trace:"qp.type"`
		State   *uint32                  `trace:"qp.state"`
		Ret     trace.Name               `trace:"ret"`
		Took    time.Duration            `trace:"latency"`
		DGID    trace.Optional[[16]byte] `trace:"dgid"`
		SGID    netip.Addr               `trace:"sgid"`
		Cgroup  trace.Cgroup             `trace:"cgroup"`
		MTU     any                      `trace:"path_mtu"`
		Retries trace.Optional[uint8]    `trace:"retry_cnt"`
		Besides string
	}
	var got []event
	for e, err := range trace.Events[event](t.Context(), open(t, flowsRecording), "ib:modify_qp / qp.num == 17 /") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) != 3 {
		t.Fatalf("%d events, want 3", len(got))
	}
	rtr, address := got[1], netip.MustParseAddr("::ffff:10.9.0.1")
	if rtr.Time.UTC().Format(time.RFC3339Nano) != "2026-11-23T22:45:17.989091863Z" || rtr.Probe != "ib:modify_qp" || rtr.PID != 222 || *rtr.QP != 17 || rtr.Comm != "ibv_rc_pingpong" {
		t.Errorf("the second event is %+v", rtr)
	}
	if rtr.Type != "RC" || *rtr.State != 2 || rtr.Ret != "0" || rtr.Took <= 0 || rtr.DGID.Value != address.As16() || rtr.SGID != address {
		t.Errorf("the second event is %+v", rtr)
	}
	if rtr.Cgroup != (trace.Cgroup{ID: 1, Path: "/"}) || rtr.MTU != uint64(1024) || rtr.Retries.Present || rtr.Retries.String() != "-" {
		t.Errorf("the second event is %+v", rtr)
	}
	if init := got[0]; init.SGID.IsValid() || init.DGID.Present || init.MTU != nil {
		t.Errorf("the first event is %+v", init)
	}
}

// A loop that is left ends the run, and nothing comes after it.
func TestEventsEnd(t *testing.T) {
	type event struct {
		PID *uint32 `trace:"pid"`
	}
	n := 0
	for _, err := range trace.Events[event](t.Context(), open(t, nvmeRecording), "nvme:complete_rq") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 7 {
			break
		}
	}
	if n != 7 {
		t.Errorf("%d events, want 7", n)
	}
}

// start compiles and starts a program on a recording.
func start(t *testing.T, host *trace.Host, text string, o ...trace.RunOption) *trace.Run {
	t.Helper()
	program, err := host.Compile("test", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Start(t.Context(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	return run
}

// Whoever leaves a loop over records does not stop the run. More records than the queue holds wait for the reader.
func TestRecordsWait(t *testing.T) {
	run := start(t, open(t, nvmeRecording), `nvme:complete_rq { @n = count(); for ($i : 0..10) { printf("%d", $i) } }`, trace.Records())
	for range run.Records(t.Context()) {
		break
	}
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	all := start(t, open(t, nvmeRecording), `nvme:complete_rq { for ($i : 0..10) { printf("%d", $i) } }`, trace.Records())
	n := 0
	for _, err := range all.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5000 {
		t.Errorf("%d records, want 5000", n)
	}
	for row, err := range run.Rows("@n") {
		if err != nil || row.Value != uint64(500) {
			t.Errorf("@n is %v %v, want 500", row.Value, err)
		}
	}
}

// Maps can be read in a loop over records, also while more of them wait than the queue holds.
func TestMapsWhileRecordsWait(t *testing.T) {
	run := start(t, open(t, nvmeRecording), `nvme:complete_rq { @n = count(); for ($i : 0..10) { printf("x") } }`, trace.Records())
	for n := range run.Records(t.Context()) {
		if n == nil {
			t.Fatal("no record")
		}
		time.Sleep(100 * time.Microsecond)
		for row, err := range run.Rows("@n") {
			if err != nil || row.Value.(uint64) == 0 {
				t.Fatal(row, err)
			}
		}
		if _, err := run.Stats(); err != nil {
			t.Fatal(err)
		}
	}
}

// Stop ends a run whose records nobody reads, and the end clauses' output is kept.
func TestStopDrains(t *testing.T) {
	run := start(t, open(t, nvmeRecording), `nvme:complete_rq { for ($i : 0..10) { printf("x") } } end { printf("the end") }`, trace.Records())
	time.Sleep(20 * time.Millisecond) // the queue fills
	if err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	last := ""
	for r, err := range run.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		last = r.Text
	}
	if last != "the end" {
		t.Errorf("the last record is %q", last)
	}
}

func TestRunErrors(t *testing.T) {
	host := open(t, nvmeRecording)
	run := start(t, host, "nvme:complete_rq { @n = count() }")
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	program, err := host.Compile("test", "nvme:complete_rq", nil)
	if err != nil {
		t.Fatal(err)
	}
	started := func(o ...trace.RunOption) error {
		run, err := program.Start(t.Context(), o...)
		if err == nil {
			_ = run.Close()
		}
		return err
	}
	_, missing := trace.OpenRecording("no.rec")
	_, param := host.Compile("test", "nvme:complete_rq / latency > $x / ; param x = 1ms", map[string]string{"x": "no"})
	_, noFile := trace.Open(trace.WithBTF("no.btf"))
	for want, err := range map[string]error{
		"no such file":                        missing,
		"no.btf":                              noFile,
		"x":                                   param,
		"there is no map @m: the maps are @n": firstError(run.Rows("@m")),
		"the run keeps no records: start it with trace.Records()": firstError(run.Records(t.Context())),
		"no field dik":              started(trace.Fields("dik")),
		"there is no output format": started(trace.Output(io.Discard, "xml")),
		"is made of the maps at the end: use text, json, csv or perfetto": started(trace.Output(io.Discard, "html")),
		"names of threads have at most 15":                                started(trace.Comm("a name that is too long")),
		"does not have the tree of processes":                             started(trace.PID(1), trace.Children()),
		"record: the events come from a recording: copy it":               host.Record(t.Context(), io.Discard, "nvme:*"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := firstError(run.Rows("@n")); err == nil || !strings.Contains(err.Error(), "the run is closed: read maps before Close") {
		t.Errorf("a closed run: %v", err)
	}
	if _, err := run.Stats(); err == nil {
		t.Error("a closed run has counts")
	}
}

// live opens this machine, if it can be traced.
func live(t *testing.T, o ...trace.Option) *trace.Host {
	t.Helper()
	host, err := trace.Open(o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	all, err := host.Available("syscall:enter")
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Err != nil {
		t.Skip(all[0].Err)
	}
	return host
}

// On this machine a program sees the calls of this process, all of them, while it runs and at its end.
func TestLive(t *testing.T) {
	var log bytes.Buffer
	host := live(t, trace.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	run := start(t, host, "syscall:enter / nr == getppid / { @n[comm] = count() } syscall:enter / nr == getpgid /", trace.PID(os.Getpid()), trace.Records())
	for range 1000 {
		syscall.Getppid()
	}
	for row, err := range run.Rows("@n") {
		if err != nil || row.Value != uint64(1000) {
			t.Errorf("getppid: %v %v, want 1000", row, err)
		}
	}
	if _, err := syscall.Getpgid(0); err != nil {
		t.Fatal(err)
	}
	stats, err := run.Stats()
	if err != nil || len(stats) != 1 || stats[0].Seen < 1001 || stats[0].Rejected == 0 || stats[0].Lost.Total() != 0 {
		t.Errorf("counts: %+v %v", stats, err)
	}
	for r, err := range run.Records(t.Context()) {
		if err != nil || r.Field("nr") != trace.Name("getpgid") || r.Field("pid") != uint64(os.Getpid()) || time.Since(r.Time) > time.Minute {
			t.Errorf("got %+v %v, want getpgid", r, err)
		}
		break
	}
	if err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	after, err := run.Stats()
	if err != nil || after[0].Seen < stats[0].Seen {
		t.Errorf("counts after the end: %+v %v", after, err)
	}
	losses, err := run.Losses()
	if err != nil || losses.Any() {
		t.Errorf("losses: %+v %v", losses, err)
	}
	if time.Since(run.Started()) > time.Minute || log.Len() == 0 {
		t.Errorf("it began at %v and logged %q", run.Started(), &log)
	}
}

// Two runs of a program are independent. The context ends a run.
func TestLiveTwice(t *testing.T) {
	host := live(t)
	ctx, end := context.WithCancel(t.Context())
	program, err := host.Compile("test", "syscall:enter / nr == getppid / { @ = count() }", nil)
	if err != nil {
		t.Fatal(err)
	}
	var runs [2]*trace.Run
	for i := range runs {
		if runs[i], err = program.Start(ctx, trace.PID(os.Getpid())); err != nil {
			t.Fatal(err)
		}
		syscall.Getppid()
	}
	end()
	for i, run := range runs {
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		for row := range run.Rows("@") {
			if row.Value != uint64(2-i) {
				t.Errorf("run %d counts %v", i, row.Value)
			}
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A struct gets events of this machine until the loop is left, and what is recorded can be read.
func TestLiveEvents(t *testing.T) {
	host := live(t)
	type call struct {
		Nr  trace.Name `trace:"nr"`
		PID int        `trace:"pid"`
	}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				syscall.Getppid()
			}
		}
	}()
	defer close(stop)
	program := fmt.Sprintf("syscall:enter / nr == getppid && pid == %d /", os.Getpid())
	for c, err := range trace.Events[call](t.Context(), host, program) {
		if err != nil || c != (call{"getppid", os.Getpid()}) {
			t.Fatalf("got %+v %v", c, err)
		}
		break
	}
	name := filepath.Join(t.TempDir(), "calls.rec")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	if err := host.Record(ctx, &ending{file, end, 0}, program); err != nil {
		t.Fatal(err)
	}
	if err := host.Record(ctx, file, program); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "record: it ended before the probes were attached: ") {
		t.Errorf("a context that has ended: %v", err)
	}
	n := 0
	for c, err := range trace.Events[call](t.Context(), open(t, name), "syscall:enter") {
		if err != nil || c != (call{"getppid", os.Getpid()}) {
			t.Fatalf("recorded: %+v %v", c, err)
		}
		n++
	}
	if n == 0 {
		t.Error("nothing was recorded")
	}
}

// ending ends a recording once it has events: they come after the header.
type ending struct {
	io.Writer
	end    func()
	writes int
}

func (e *ending) Write(p []byte) (int, error) {
	if e.writes++; e.writes == 2 {
		e.end()
	}
	return e.Writer.Write(p)
}

// A writer that fails ends the recording with its error.
func TestLiveRecordFails(t *testing.T) {
	host := live(t)
	if err := host.Record(t.Context(), failing{}, "syscall:enter / nr == getppid /"); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// An endless loop ends a second after the context, and is among the losses, as is the rest of its event.
func TestEndOfContextCuts(t *testing.T) {
	program, err := open(t, flowsRecording).Compile("endless", "begin { @began = 1 } ib:modify_qp { printf(\"it runs\"); while (true) { @turns++ } @n++ } end { @ended = 1 }", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	run, err := program.Start(ctx, trace.Records())
	if err != nil {
		t.Fatal(err)
	}
	for range run.Records(t.Context()) {
		break
	}
	end()
	select {
	case <-run.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	defer run.Close()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	l, err := run.Losses()
	if got := fmt.Sprint(l.Cut, l.Any(), err); got != "[ib:modify_qp] true <nil>" {
		t.Errorf("got %s", got)
	}
	rows := map[string]int{}
	for _, name := range run.Maps() {
		for range run.Rows(name) {
			rows[name]++
		}
	}
	if rows["@began"] != 1 || rows["@ended"] != 1 || rows["@n"] != 0 {
		t.Errorf("the maps have %v", rows)
	}
}

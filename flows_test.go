package trace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"trace"
)

// The example begins here: RDMA connections with both QPs, addresses and the cgroup, when they ended and why, in 25 lines.

type flow struct {
	Time   time.Time              `trace:"time"`
	Probe  string                 `trace:"probe"`
	Dev    trace.Optional[string] `trace:"dev"`
	QP     trace.Optional[uint32] `trace:"qp.num"`
	Peer   trace.Optional[uint32] `trace:"dest_qpn"`
	State  trace.Name             `trace:"qp.state"`
	SGID   netip.Addr             `trace:"sgid"`
	DGID   netip.Addr             `trace:"dgid"`
	PID    uint32                 `trace:"pid"`
	Comm   string                 `trace:"comm"`
	Cgroup trace.Cgroup           `trace:"cgroup"`
}

func flows(ctx context.Context, host *trace.Host, w io.Writer) error {
	ready := map[[2]any]time.Time{}
	for f, err := range trace.Events[flow](ctx, host, "ib:modify_qp / ret == 0 && qp.state in [RTR, RESET, ERR] /; ib:destroy_qp / ret == 0 /") {
		if err != nil {
			return err
		}
		qp, at, who := [2]any{f.Dev, f.QP}, f.Time.Format("15:04:05.000000"), fmt.Sprintf("%s/%d", f.Comm, f.PID)
		if since, known := ready[qp]; f.Peer.Present {
			ready[qp] = f.Time
			fmt.Fprintln(w, at, "ready", f.Dev, f.SGID, "qp", f.QP, "->", f.DGID, "qp", f.Peer, who, "cgroup="+f.Cgroup.String())
		} else if why := map[bool]string{true: "destroyed in", false: "changed to"}[f.Probe == "ib:destroy_qp"]; known {
			delete(ready, qp)
			fmt.Fprintf(w, "%s ended %v qp %v after %v: %s %s by %s\n", at, f.Dev, f.QP, f.Time.Sub(since).Round(time.Millisecond), why, f.State, who)
		}
	}
	return nil
}

// The example ends here.

// flowsRecording has two connections of ibv_rc_pingpong.
const flowsRecording = "scripts/testdata/rdma_flows.rec"

func open(t testing.TB, files ...string) *trace.Host {
	t.Helper()
	host, err := trace.OpenRecording(files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host
}

// The example prints what the script prints, except for the type of the QPs and the MTU.
func TestFlows(t *testing.T) {
	text, err := os.ReadFile("scripts/rdma_flows.trace")
	if err != nil {
		t.Fatal(err)
	}
	var script, example bytes.Buffer
	host := open(t, flowsRecording)
	program, err := host.Compile("rdma_flows", string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Start(t.Context(), trace.Output(&script, "text"))
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flows(t.Context(), host, &example); err != nil {
		t.Fatal(err)
	}
	want, _, _ := strings.Cut(strings.NewReplacer(" RC", "", " mtu=1024", "").Replace(script.String()), "\n\n")
	if got := strings.TrimSpace(example.String()); got != want || strings.Count(got, "\n") != 3 {
		t.Errorf("the example prints\n%s\nand the script\n%s", got, want)
	}
}

// The example has at most 25 lines besides blank ones and closing braces.
func TestFlowsAreShort(t *testing.T) {
	text, err := os.ReadFile("flows_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("The example begins here"))
	text, _, _ = bytes.Cut(text, []byte("// The example ends here"))
	n := -1 // for the rest of the comment
	for line := range strings.Lines(string(text)) {
		if strings.Trim(line, "} \t\n") != "" {
			n++
		}
	}
	if n > 25 || n < 20 {
		t.Errorf("the example has %d lines", n)
	}
}

func ExampleEvents() {
	host, err := trace.OpenRecording(flowsRecording)
	if err != nil {
		panic(err)
	}
	defer host.Close()
	type change struct {
		QP    trace.Optional[uint32] `trace:"qp.num"`
		From  trace.Name             `trace:"prev_state"`
		State trace.Name             `trace:"qp.state"`
	}
	for c, err := range trace.Events[change](context.Background(), host, "ib:modify_qp / qp.num == 17 /") {
		if err != nil {
			panic(err)
		}
		fmt.Println(c.QP, c.From, c.State)
	}
	// Output:
	// 17  INIT
	// 17 INIT RTR
	// 17 RTR RTS
}

//go:build vm

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A served is a program with a server and a client, whose arguments end with the number of a port.
type served struct {
	command string
	early   uint64 // receives that the server posts before a client comes
	// counts returns what each of them posts and polls, by the numbers that the program prints.
	counts func(t *testing.T, printed string, client bool) programCounts
}

// earlyPings: each side of a ping-pong posts ten receives before it connects (-r).
const earlyPings = 10

var servedPrograms = []served{
	{"ibv_rc_pingpong -d rxe0 -g 1 -n 30 -r 10 -s 1000", earlyPings, pingpong(false, 0)},
	{"ibv_rc_pingpong -N -e -d rxe0 -g 1 -n 30 -r 10 -s 1000", earlyPings, pingpong(false, 0)},
	{"ibv_uc_pingpong -e -d rxe0 -g 1 -n 30 -r 10 -s 1000", earlyPings, pingpong(false, 0)},
	{"ibv_ud_pingpong -e -d rxe0 -g 1 -n 30 -r 10 -s 1000", earlyPings, pingpong(false, 40)},
	{"ibv_srq_pingpong -e -d rxe0 -g 1 -n 30 -r 10 -s 1000 -q 1", earlyPings, pingpong(true, 0)},
	{"ib_send_bw -d rxe0 -x 1 -F -n 200 -s 1000", 0, bandwidth("SEND", "SEND", 100)},
	{"ib_send_bw --use_old_post_send -d rxe0 -x 1 -F -n 200 -s 1000 -Q 1", 0, bandwidth("SEND", "SEND", 1)},
	{"ib_send_lat -d rxe0 -x 1 -F -n 40 -s 1000", 0, latencyTest},
	{"ib_send_lat --use_old_post_send -d rxe0 -x 1 -F -n 40 -s 1000", 0, latencyTest},
	{"ib_write_bw -d rxe0 -x 1 -F -n 200 -s 1000", 0, bandwidth("RDMA_WRITE", "RDMA_WRITE", 100)},
	{"ib_write_bw --use_old_post_send -l 10 -Q 10 -d rxe0 -x 1 -F -n 200 -s 1000", 0, bandwidth("RDMA_WRITE", "RDMA_WRITE", 10)},
	{"ib_read_bw -d rxe0 -x 1 -F -n 200 -s 1000", 0, bandwidth("RDMA_READ", "RDMA_READ", 100)},
	{"ib_atomic_bw -d rxe0 -x 1 -F -n 200", 0, bandwidth("ATOMIC_FETCH_AND_ADD", "FETCH_ADD", 100)},
	{"rping -v -a 10.9.0.1 -C 10 -S 100", 0, rping},
}

// numbersIn returns the numbers that a pattern finds in what a program prints.
func numbersIn(t *testing.T, printed, pattern string) (numbers []uint64) {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("no %s in\n%s", pattern, printed)
	}
	for _, text := range found[1:] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// pingpong: it prints its iterations, and the bytes of both directions. It posts nine more receives whenever only one is
// left of the first (main in libibverbs/examples/*_pingpong.c). With UD each message is received with a header.
func pingpong(srq bool, header uint64) func(*testing.T, string, bool) programCounts {
	return func(t *testing.T, printed string, client bool) programCounts {
		t.Helper()
		n, bytes := numbersIn(t, printed, `(\d+) iters in`)[0], numbersIn(t, printed, `(\d+) bytes in`)[0]
		receives := earlyPings + n/9*9
		return programCounts{
			sends: map[string]uint64{"SEND": n}, sent: bytes / 2, receives: map[string]uint64{fmt.Sprint(srq): receives},
			received: bytes/2 + n*header, completions: map[string]uint64{"SEND, SUCCESS": n, "RECV, SUCCESS": n},
			completed: n, retired: n, retires: bytes / 2,
		}
	}
}

// bandwidth: it prints the bytes of a message, and its iterations. The client alone posts, and asks for every so many completions; the server
// receives, if it is SEND.
func bandwidth(opcode, completion string, signaled uint64) func(*testing.T, string, bool) programCounts {
	return func(t *testing.T, printed string, client bool) programCounts {
		t.Helper()
		row := numbersIn(t, printed, `#bytes +#iterations.*\n +(\d+) +(\d+) `)
		bytes, n := row[0]*row[1], row[1]
		switch {
		case client:
			return programCounts{
				sends: map[string]uint64{opcode: n}, sent: bytes, completions: map[string]uint64{completion + ", SUCCESS": n / signaled},
				completed: n / signaled, retired: n, retires: bytes,
			}
		case opcode == "SEND":
			return programCounts{receives: map[string]uint64{"false": n}, received: bytes, completions: map[string]uint64{"RECV, SUCCESS": n}}
		}
		return programCounts{}
	}
}

// latencyTest: both send and receive as many messages as the table has iterations.
func latencyTest(t *testing.T, printed string, client bool) programCounts {
	t.Helper()
	row := numbersIn(t, printed, `#bytes +#iterations.*\n +(\d+) +(\d+) `)
	bytes, n := row[0]*row[1], row[1]
	return programCounts{
		sends: map[string]uint64{"SEND": n}, sent: bytes, receives: map[string]uint64{"false": n}, received: bytes,
		completions: map[string]uint64{"SEND, SUCCESS": n, "RECV, SUCCESS": n}, completed: n, retired: n, retires: bytes,
	}
}

// rping: with -v the client prints a line for each ping. For a ping it sends two advertisements of 16 bytes, and the server reads the ping,
// writes it back, and sends an answer to each advertisement. Each side has one receive posted more than it gets, which is flushed at the end
// (rping_test_client and rping_test_server in librdmacm/examples/rping.c).
func rping(t *testing.T, printed string, client bool) programCounts {
	t.Helper()
	const size, advertisement = 100, 16
	n := uint64(10)
	if client {
		n = uint64(strings.Count(printed, "ping data: rdma-ping-"))
	}
	counts := programCounts{
		sends: map[string]uint64{"SEND": 2 * n}, sent: 2 * n * advertisement, receives: map[string]uint64{"false": 2*n + 1},
		received: 2 * n * advertisement, completions: map[string]uint64{"SEND, SUCCESS": 2 * n, "RECV, SUCCESS": 2 * n, "-, WR_FLUSH_ERR": 1},
		completed: 2 * n, retired: 2 * n, retires: 2 * n * advertisement,
	}
	if !client {
		counts.sent += 2 * n * size
		counts.retires += 2 * n * size
		counts.completed += 2 * n
		counts.retired += 2 * n
		maps.Copy(counts.sends, map[string]uint64{"RDMA_READ": n, "RDMA_WRITE": n})
		maps.Copy(counts.completions, map[string]uint64{"RDMA_READ, SUCCESS": n, "RDMA_WRITE, SUCCESS": n})
	}
	return counts
}

// A job is a program that runs.
type job struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func startJob(t *testing.T, args ...string) *job {
	t.Helper()
	return startJobWith(t, nil, args...)
}

// startJobWith starts it with an input.
func startJobWith(t *testing.T, in *os.File, args ...string) *job {
	t.Helper()
	j := &job{cmd: exec.Command(args[0], args[1:]...)}
	if in != nil {
		j.cmd.Stdin = in
	}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.cmd.Process.Kill() })
	return j
}

// A result is what a program's user sees: its exit status, and its output without what differs from run to run.
func (j *job) result() string {
	limit := time.AfterFunc(2*time.Minute, func() { j.cmd.Process.Kill() }) // from now on: a server may have waited for long
	defer limit.Stop()
	err := j.cmd.Wait()
	return fmt.Sprintf("exit status: %v\n%s", err, differing.ReplaceAllString(unasked.ReplaceAllString(j.out.String(), ""), "N"))
}

var (
	// differing are times, rates and addresses, and numbers of QPs and of processes.
	differing = regexp.MustCompile(`(0x[0-9a-f]+|\d+\.\d+|-?nan|"(pid|polls|empty|empty_before|sender|receiver)":\d+|[ \t])+`)
	// unasked is what rping may print when one side ends before the other, and perftest about the clock that it measures.
	unasked = regexp.MustCompile(`unhandled event: .*\n|(client|server) DISCONNECT EVENT\.\.\.\n|wait for RDMA_READ_ADV state .*\n|Correlation coefficient .*\n`)
)

// serve starts the server, which listens when this returns.
func (s served) serve(t *testing.T, port int) *job {
	t.Helper()
	args := append(strings.Fields(s.command), "-p", strconv.Itoa(port))
	if s.isRping() {
		args = append(args, "-s")
	}
	server := startJob(t, args...)
	tcp := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, port))
	waitUntil(t, s.command+" listens", func() bool {
		if s.isRping() {
			return strings.Contains(sh(t, "rdma res show cm_id"), fmt.Sprint(":", port))
		}
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if data, err := os.ReadFile(table); err == nil && tcp.Match(data) {
				return true
			}
		}
		return false
	})
	return server
}

func (s served) connect(t *testing.T, port int) *job {
	t.Helper()
	args := append(strings.Fields(s.command), "-p", strconv.Itoa(port))
	if s.isRping() {
		return startJob(t, append(args, "-c")...)
	}
	return startJob(t, append(args, "10.9.0.1")...)
}

func (s served) isRping() bool { return strings.HasPrefix(s.command, "rping") }

// The programs of rdma-core and perftest post and poll what they print, and they print what they print without trace. The servers begin before
// trace, the clients after it.
func TestVMDatapathPrograms(t *testing.T) {
	const port = 18600
	type pair struct{ server, client string }
	var alone []pair
	var servers []*job
	for i, s := range servedPrograms {
		server := s.serve(t, port+i)
		client := s.connect(t, port+i).result()
		alone = append(alone, pair{server.result(), client})
		servers = append(servers, s.serve(t, port+100+i))
	}
	trace := startTool(t, "ttached", "trace", programTotals("pid"))
	want := make(map[string]uint64)
	for i, s := range servedPrograms {
		client := s.connect(t, port+100+i)
		got := pair{client: client.result()}
		got.server = servers[i].result()
		if got != alone[i] {
			t.Errorf("%s prints\n%s\nwith trace, and without it\n%s", s.command, got, alone[i])
		}
		served := s.counts(t, servers[i].out.String(), false)
		for queue := range served.receives {
			served.receives[queue] -= s.early
		}
		served.addTo(want, servers[i].cmd.Process.Pid)
		s.counts(t, client.out.String(), true).addTo(want, client.cmd.Process.Pid)
	}
	if len(want) < 6*len(servedPrograms) {
		t.Errorf("only %d counts: %v", len(want), want)
	}
	sameCounts(t, trace, want)
}

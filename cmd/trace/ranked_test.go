package main

import (
	"encoding/csv"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// What a small map ranks is within its bounds, of events on all CPUs, in both engines, at the end and where an interval reads it.
func TestRankedLive(t *testing.T) {
	requireLive(t)
	const program = `let @top = hash(4)
syscall:enter / comm == "helper" && nr == getppid / { @top = topk(nsecs & (nsecs >> 8) & 0x3f, 64, 3); @[nsecs & (nsecs >> 8) & 0x3f] = sum(3) }`
	for _, more := range []string{"", " interval:50ms { $n = len(@top) }"} {
		for _, flag := range []string{"--strict", "--no-kernel"} {
			cmd := exec.Command("trace", "-q", flag, "--buffer-size", "64MiB", "-f", "csv", "--children", "-c", "sh -c 'helper 40000 & helper 40000; wait'", program+more)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r := csv.NewReader(strings.NewReader(string(out)))
			r.FieldsPerRecord = -1
			records, err := r.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			truth, inexact, rows := map[string]uint64{}, 0, 0
			for _, record := range records {
				if record[0] == "@" {
					truth[record[1]] = countIn(t, record[2])
				}
			}
			for _, record := range records {
				if record[0] != "@top" {
					continue
				}
				rows++
				most, off := countIn(t, record[2]), countIn(t, record[3])
				if n := truth[record[1]]; n > most || n < most-off {
					t.Errorf("%s%s: %s is %d, and not within %d and %d less", flag, more, record[1], n, most, off)
				}
				if off > 0 {
					inexact++
				}
			}
			if rows < 4 || inexact == 0 || len(truth) < 32 {
				t.Errorf("%s%s: %d rows, %d of them not exact, of %d keys", flag, more, rows, inexact, len(truth))
			}
		}
	}
}

func countIn(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The times of nsecs(mode) lie between the readings of these clocks before and after the run.
func TestClocksOfNsecs(t *testing.T) {
	for mode, id := range map[string]int32{"boot": unix.CLOCK_BOOTTIME, "monotonic": unix.CLOCK_MONOTONIC, "tai": unix.CLOCK_TAI, "sw_tai": unix.CLOCK_TAI} {
		before := clockNow(t, id)
		out, err := exec.Command("trace", "-q", "begin { print(nsecs("+mode+")) }").CombinedOutput()
		after := clockNow(t, id)
		var at int64
		if _, e := fmt.Sscan(string(out), &at); e != nil || err != nil || at < before || at > after {
			t.Errorf("nsecs(%s) is %s, want between %d and %d; %v", mode, out, before, after, err)
		}
	}
}

func clockNow(t *testing.T, id int32) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano()
}

func TestNamesAndSizes(t *testing.T) {
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf(`begin { print(comm(%d)); print(comm(99999999)); let $x: int16 = 3; let $y: typeof($x) = -1;
		print((sizeof($y), sizeof(uint32), sizeof("abc"), (typeof($x))65537, is_str("a"), is_integer("a"))) }`, os.Getpid())
	out, err := exec.Command("trace", "-q", program).CombinedOutput()
	if want := strings.TrimSpace(string(name)) + "\n-\n(2, 4, 4, 1, true, false)\n"; err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}

// A duration times a number is a duration, a size is not a size: 4KiB * 8 may be bits.
func TestTimesANumber(t *testing.T) {
	const program = `begin { $n = 3; print(4us * $n); print($n * 1ms * 2); print(2s * 2); print(1ms * 1ms); print(4KiB * $n) }`
	out, err := exec.Command("trace", "-q", program).CombinedOutput()
	if want := "12us\n6ms\n4s\n1000000000000\n12288\n"; err != nil || string(out) != want {
		t.Errorf("it prints %q, want %q: %v", out, want, err)
	}
}

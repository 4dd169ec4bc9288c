package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPrintAndClear sees each system call in exactly one print, whatever is done between print and clear, and however many keys there
// are in all.
func TestPrintAndClear(t *testing.T) {
	requireLive(t)
	const calls = 2000
	for name, program := range map[string]string{
		"time between":    `{ @[cpu] = count() } interval:100ms { print(@); for ($i : 0..200000) { $x = $i } clear(@) }`,
		"idle keys":       `{ @[cpu] = count() } interval:5ms { print(@); clear(@) }`,
		"scalar":          `{ @[cpu]++ } interval:50ms { print(@); clear(@) }`,
		"without a key":   `{ @++ } interval:50ms { print(@); @ = 0 }`,
		"keys one by one": `{ @[cpu] = sum(1) } interval:50ms { for ($kv : @) { printf("@: %d\n", $kv.1); delete(@, $kv.0) } }`,
		"two intervals":   `{ @[cpu] = stats(1) } interval:50ms { print(@) } interval:50ms { clear(@) }`,
		"a key a call":    `{ @[nsecs] = count() } interval:100ms { printf("@: %d\n", len(@)); clear(@) } end { printf("@: %d\n", len(@)); clear(@) }`,
	} {
		t.Run(name, func(t *testing.T) {
			tr := startTrace(t, "--strict", "--map-size", "1000", fmt.Sprintf("syscall:enter / pid == %d && nr == getppid / %s", os.Getpid(), program))
			printed := make(chan []byte, 1)
			go func() {
				out, _ := io.ReadAll(tr.stdout)
				printed <- out
			}()
			for i := range calls {
				unix.Getppid()
				if i%10 == 0 {
					time.Sleep(5 * time.Millisecond)
				}
			}
			if err := tr.cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
			report := tr.endsWithin(20*time.Second, exitOK)
			sum, out := 0, <-printed
			for _, m := range regexp.MustCompile(`(?m)^@\S*: (?:\{ .count = )?(\d+)`).FindAllSubmatch(out, -1) {
				n, err := strconv.Atoi(string(m[1]))
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
			if sum != calls {
				t.Errorf("%d of %d calls in\n%s%s", sum, calls, out, report)
			}
		})
	}
}

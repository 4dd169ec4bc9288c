//go:build vm && amd64

package probes

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// buildCompat compiles testdata/compat.c.
func buildCompat(t *testing.T, bits string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "compat")
	shell(t, fmt.Sprintf("gcc -m%s -O1 -Wall -Werror -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -o %s testdata/compat.c", bits, name))
	return name
}

// A call by the convention of 32-bit processes has its own name, number and arguments, in such a process, and in a 64-bit one that makes it by
// int $0x80; and its end has the time that it took, also where the number is exit's in the other convention.
func TestVMCompat(t *testing.T) {
	names := map[int]int{60: unix.SYS_UMASK, 64: unix.SYS_GETPPID, 102: 4096 + 102, 163: unix.SYS_MREMAP, 172: unix.SYS_PRCTL}
	arguments := map[int]string{60: "18 0 0 0 0 0", 64: "0 0 0 0 0 0", 102: "99 0 0 0 0 0", 163: "4096 8192 12288 0 16384 0", 172: "4242 12 13 14 15 16"}
	for _, bits := range []string{"32", "64"} {
		program := buildCompat(t, bits)
		for _, way := range []way{typedTracepoint{}, rawTracepoint{}, ftraceEvent{}} {
			for _, p := range detect(t).catalog.Match("syscall:*") {
				t.Run(fmt.Sprint(bits, " bits, ", p, " by ", way), func(t *testing.T) {
					h := detect(t)
					index := slices.IndexFunc(h.variantsOf(p), func(v variant) bool { return v.way == way })
					if err := h.variantsOf(p)[index].check(); err != nil {
						t.Skipf("this kernel has no such variant: %v", err)
					}
					cmd := exec.Command(program)
					begin, err := cmd.StdinPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					reqs, o := requestsFor(want{probe: p, fields: p.Fields, pid: cmd.Process.Pid})
					s, err := attachOnly(h, index, reqs[0], o)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					events := collect(t, s, func() {
						begin.Close()
						if err := cmd.Wait(); err != nil {
							t.Error(err)
						}
					})
					got, want := map[string]int{}, map[string]int{}
					for _, e := range events {
						if raw, err := strconv.Atoi(e["raw_nr"]); err == nil && arguments[raw] != "" {
							args := strings.Join([]string{e["arg0"], e["arg1"], e["arg2"], e["arg3"], e["arg4"], e["arg5"]}, " ")
							got[fmt.Sprint(raw, " is ", e["nr"], ", compat ", e["compat"], ", latency ", e["latency"] != "-", ", arguments ", strings.TrimSpace(args))]++
						}
					}
					for raw, args := range arguments {
						if p.Name == "exit" {
							args = "" // it has none
						}
						want[fmt.Sprint(raw, " is ", names[raw], ", compat true, latency true, arguments ", args)] = 1000
					}
					if !maps.Equal(got, want) {
						t.Errorf("calls are %v, want %v", got, want)
					}
					checkNoneLost(t, s)
				})
			}
		}
	}
}

// Calls that change mappings are seen of these processes, too, with their arguments.
func TestVMCompatMappings(t *testing.T) {
	for _, bits := range []string{"32", "64"} {
		cmd := exec.Command(buildCompat(t, bits))
		begin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h := detect(t)
		p := h.catalog.Match("vm:map")[0]
		s := attachWants(t, h, want{probe: p, fields: p.Fields, pid: cmd.Process.Pid})
		seen := 0
		for _, e := range collect(t, s, func() {
			begin.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}) {
			if e["address"] == "4096" && e["length"] == "12288" && e["ret"] == strconv.Itoa(-int(unix.EFAULT)) {
				seen++
			}
		}
		if seen != 1000 {
			t.Errorf("%s bits: %d calls of mremap(4096, 8192, 12288, 0, 16384), want 1000", bits, seen)
		}
		checkNoneLost(t, s)
		s.Close()
	}
}

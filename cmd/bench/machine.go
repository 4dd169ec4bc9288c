package main

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// describe writes the machine and the versions of the tools.
func describe(ctx context.Context, w io.Writer, tools []tool, clang string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	fmt.Fprintf(w, "- %s, kernel %s %s, %d CPUs, %s\n", time.Now().Format(time.DateOnly),
		unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU(), cpuModel())
	fmt.Fprintf(w, "- load averages at the beginning: %s\n", loadAverages())
	for _, t := range tools {
		version, err := t.version(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "- %s\n", version)
	}
	if len(tools) == 1 {
		fmt.Fprintln(w, "- bpftrace is not available")
	}
	if clang != "" {
		fmt.Fprintf(w, "- hand-written C compiled by %s\n", clang)
	}
	return nil
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "model unknown"
}

func loadAverages() string {
	text, _ := os.ReadFile("/proc/loadavg")
	averages := strings.Fields(string(text))
	return strings.Join(averages[:min(3, len(averages))], " ")
}

// staticSize returns the size of a binary that needs no library.
func staticSize(path string) (int64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; run make build", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return 0, fmt.Errorf("%s is not static; run make build", path)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

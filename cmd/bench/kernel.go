package main

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// loadedPrograms returns the ids of the BPF programs that the kernel has now.
func loadedPrograms() (map[ebpf.ProgramID]bool, error) {
	loaded := make(map[ebpf.ProgramID]bool)
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return loaded, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list BPF programs: %w", err)
		}
		loaded[next] = true
		id = next
	}
}

// accounted returns the ns per call that the kernel itself accounts to the programs except others, in the fastest of many batches
// (kernel.bpf_stats_enabled). It includes part of the time for the accounting.
func accounted(l *loop, others map[ebpf.ProgramID]bool) (float64, error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, fmt.Errorf("let the kernel account BPF programs: %w", err)
	}
	defer stats.Close()
	least := math.Inf(1)
	before, err := runs(others)
	for range 100 {
		if err != nil {
			return 0, err
		}
		l.calls(batchCalls)
		var after map[ebpf.ProgramID]ebpf.ProgramStats
		after, err = runs(others)
		least = min(least, perCall(before, after))
		before = after
	}
	return least, err
}

// perCall returns the ns that the programs took for each call of a batch.
func perCall(before, after map[ebpf.ProgramID]ebpf.ProgramStats) float64 {
	var ns float64
	for id, a := range after {
		b, known := before[id]
		// Some programs run for other events.
		if n := a.RunCount - b.RunCount; known && n >= batchCalls/2 {
			ns += float64(a.Runtime-b.Runtime) / float64(n)
		}
	}
	return ns
}

// runs returns how often and how long each program ran, except others.
func runs(others map[ebpf.ProgramID]bool) (map[ebpf.ProgramID]ebpf.ProgramStats, error) {
	loaded, err := loadedPrograms()
	if err != nil {
		return nil, err
	}
	all := make(map[ebpf.ProgramID]ebpf.ProgramStats)
	for id := range loaded {
		if others[id] {
			continue
		}
		program, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return nil, fmt.Errorf("open BPF program %d: %w", id, err)
		}
		stats, err := program.Stats()
		program.Close()
		if err != nil {
			return nil, fmt.Errorf("run time of BPF program %d: %w", id, err)
		}
		all[id] = *stats
	}
	return all, nil
}

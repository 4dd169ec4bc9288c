package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/lang/result"
)

// This file writes what maps hold by stack, for tools that draw flame graphs.

// Folded is the stacks of maps as lines for flamegraph.pl.
const Folded Format = "folded"

// writeFolded writes a line for each stack, as flamegraph.pl reads it: the elements of the key, the frames from the outermost, and
// the value. If there are several maps, the name comes first.
func (d *Document) writeFolded(w io.Writer, _ Summary, profiles []result.Profile) error {
	for _, p := range profiles {
		for _, s := range p.Samples {
			line := flames(s)
			if len(profiles) > 1 {
				line = slices.Concat([]string{p.Map}, line)
			}
			for i, frame := range line {
				line[i] = foldedFrame.Replace(frame)
			}
			if _, err := fmt.Fprintf(w, "%s %d\n", strings.Join(line, ";"), s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldedFrame replaces characters that would end a frame or a line.
var foldedFrame = strings.NewReplacer(";", ":", "\n", " ", "\r", " ")

// noStack stands for the frames of an event without a stack, like kstack if profile interrupts user mode.
const noStack = "(no stack)"

// flames returns the elements of the key, then the frames.
func flames(s result.Sample) []string {
	if len(s.Frames) == 0 {
		return slices.Concat(s.Key, []string{noStack})
	}
	return slices.Concat(s.Key, s.Frames)
}

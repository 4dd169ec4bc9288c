// Package run runs programs on the events of this machine or of recordings. It attaches the probes, runs the intervals, decides
// when a run ends, and records events. A program's output goes to [Outputs]. Everything else is data: a [Note] at once, and a
// [Report] at the end. Package main turns these into text and an exit status.
//
//	NewLive(options).Run(ctx, outputs)                  on this machine
//	NewReplay(options, recording).Run(ctx, outputs)     on recordings
//
// Both return the maps at the end: see [Ended].
package run

// Package run runs programs: on the events of this machine, or on those of recordings. It attaches the probes, keeps the intervals, decides
// when a run ends, and records events. What a program prints goes to [Outputs]; what happens besides is data, a [Note] at once and a [Report]
// at the end. Package main makes text of them, and an exit status.
//
//	NewLive(options).Run(ctx, outputs)                  on this machine
//	NewReplay(options, recording).Run(ctx, outputs)     on recordings
//
// Both return the maps as they are at the end: see [Ended].
package run

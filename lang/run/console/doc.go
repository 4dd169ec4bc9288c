// Package console prints what happens in a run, and its report, as lines for people. The data comes from packages run and
// recording.
package console

package format

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// This file has the texts of Linux for its numbers, on every system that reads a recording. A line of a file is the text of its
// number; an empty line is a number without one.

//go:embed errors.txt
var errorTexts string

//go:embed signals.txt
var signalTexts string

// ErrorText returns the text of an error number, which may be negative.
func ErrorText(n int64) string {
	if n == 0 {
		return "Success"
	}
	if n < 0 {
		n = -n
	}
	if text := line(errorTexts, n); text != "" {
		return text
	}
	return "Unknown error"
}

// Errors returns the error numbers that have a text of their own, in ascending order.
func Errors() (all []int64) {
	for i, text := range strings.Split(errorTexts, "\n") {
		if text != "" {
			all = append(all, int64(i)+1)
		}
	}
	return all
}

// Real-time signals of programs. The C library keeps the two before them for itself.
const firstRealTime, lastRealTime = 34, 64

// SignalText returns the text of a signal.
func SignalText(n int64) string {
	if text := line(signalTexts, n); text != "" {
		return text
	}
	switch {
	case firstRealTime <= n && n <= lastRealTime:
		return fmt.Sprintf("Real-time signal %d", n-firstRealTime)
	case n > lastRealTime:
		return "N/A"
	}
	return fmt.Sprintf("Unknown signal %d", n)
}

// LastSignal is the largest number of a signal.
const LastSignal = lastRealTime

// signalNames are the names of the signals from 1 on, include/uapi/asm-generic/signal.h.
var signalNames = strings.Fields(`HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU
	URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS`)

// SignalNames returns the names of the signals, without SIG.
func SignalNames() []string { return slices.Clone(signalNames) }

// SignalNumber returns the number of a signal called KILL or SIGKILL, or 0 if there is none.
func SignalNumber(name string) uint64 {
	return uint64(slices.Index(signalNames, strings.TrimPrefix(name, "SIG")) + 1)
}

// line returns line n of a text, or "" if there is none.
func line(text string, n int64) string {
	lines := strings.Split(text, "\n")
	if n < 1 || n > int64(len(lines)) {
		return ""
	}
	return lines[n-1]
}

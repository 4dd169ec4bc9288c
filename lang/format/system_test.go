package format

import "testing"

func TestTextsOfNumbers(t *testing.T) {
	for n, want := range map[int64]string{
		0: "Success", 2: "No such file or directory", -2: "No such file or directory", 133: "Memory page has hardware error", 41: "Unknown error",
		9999: "Unknown error", -1 << 63: "Unknown error",
	} {
		if got := ErrorText(n); got != want {
			t.Errorf("error %d: got %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{
		9: "Killed", 15: "Terminated", 31: "Bad system call", 32: "Unknown signal 32", 34: "Real-time signal 0", 64: "Real-time signal 30", 65: "N/A",
		0: "Unknown signal 0", -1: "Unknown signal -1",
	} {
		if got := SignalText(n); got != want {
			t.Errorf("signal %d: got %q, want %q", n, got, want)
		}
	}
}

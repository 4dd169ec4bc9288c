//go:build !linux

package proc

// No other system has what is read in this way.
func threadID() int { return 0 }

func sleepOf(int) sleep { return sleep{asleep: true} }

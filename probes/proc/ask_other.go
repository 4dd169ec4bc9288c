//go:build !linux

package proc

// No other system has what is read in this way.
func threadID() int { return 0 }

func sleepOf(int) sleep { return sleep{asleep: true} }

// Payer returns the user: no other system has user namespaces.
func Payer(_ int, user uint32) uint32 { return user }

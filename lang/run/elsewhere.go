//go:build !linux

package run

// BecomeCommand returns false: this system starts no commands.
func BecomeCommand([]string) bool { return false }

//go:build !linux

package run

// BecomeCommand does nothing: this system starts no commands.
func BecomeCommand([]string) {}

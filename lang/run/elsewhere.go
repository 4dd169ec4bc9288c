//go:build !linux

package run

// BecomeCommand does nothing: no command is started.
func BecomeCommand([]string) {}

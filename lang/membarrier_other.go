//go:build !linux

package lang

// waitForPrograms has none to wait for: they run in Linux.
func waitForPrograms() {}

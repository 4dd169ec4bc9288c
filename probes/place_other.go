//go:build !linux

package probes

// attachable is what nothing can be attached to but on Linux.
type attachable interface{}

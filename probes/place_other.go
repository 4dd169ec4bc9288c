//go:build !linux

package probes

// attachable requires nothing of a place: programs are attached on Linux only.
type attachable interface{}

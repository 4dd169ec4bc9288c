//go:build !unix

package main

import "syscall"

// showSignal never comes.
const showSignal = syscall.Signal(-1)

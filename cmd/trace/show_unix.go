//go:build unix

package main

import "golang.org/x/sys/unix"

// showSignal asks for the maps.
const showSignal = unix.SIGUSR1

//go:build !unix

package main

import "syscall"

// showSignal does not exist here.
const showSignal = syscall.Signal(-1)

//go:build vm

package main

import "testing"

func TestVMRunq(t *testing.T) { checkWaits(t) }

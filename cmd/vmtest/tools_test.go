package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckTools(t *testing.T) {
	if err := checkTools([]tool{{"sh", "dash"}}); err != nil {
		t.Error(err)
	}
	err := checkTools([]tool{{"sh", "dash"}, {"no-such-a", "pkg1"}, {"no-such-b", "pkg1"}, {"no-such-c", "pkg2"}})
	if err == nil || !strings.HasSuffix(err.Error(), "no-such-a no-such-b no-such-c; install with: apt-get install pkg1 pkg2") {
		t.Errorf("got error %v", err)
	}
}

func TestNeededTools(t *testing.T) {
	has := func(opt options, cached bool, program string) bool {
		return slices.ContainsFunc(neededTools(opt, cached), func(t tool) bool { return t.program == program })
	}
	x86, arm := options{kernel: kernels()[0]}, options{kernel: kernel{arch: "arm64"}}
	if !has(x86, false, "apt-get") || has(x86, true, "apt-get") {
		t.Error("apt is needed for a cold cache only")
	}
	if !has(x86, true, "rdma") || has(arm, true, "rdma") || !has(arm, true, "qemu-system-aarch64") {
		t.Error("tools do not fit the architecture")
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
	if got := lastLines("a", 2); got != "a" {
		t.Errorf("got %q", got)
	}
}

package main

import (
	"slices"
	"strings"
	"testing"
)

// indexNames are names as apt-cache pkgnames prints them, in no order.
const indexNames = `
linux-image-amd64
linux-image-6.12.94+deb13-amd64
linux-image-6.12.107+deb13-amd64
linux-image-6.12.107+deb13-amd64-unsigned
linux-image-6.12.107+deb13-amd64-dbg
linux-image-6.12.110+deb13-rt-amd64
linux-image-6.12.110+deb13-cloud-amd64
linux-image-5.10.0-9-amd64
linux-image-5.10.0-32-amd64
linux-image-5.10.0-32-rt-amd64
linux-image-6.1.0-50-amd64
linux-image-6.1.0-0.deb11.90-amd64
linux-image-6.1.0-49-rt-amd64
linux-image-6.1.0-50-rt-amd64
linux-image-6.1.0-50-rt-amd64-dbg
linux-image-7.2.13+deb14-amd64
linux-image-7.10.1+deb14-amd64
linux-image-6.12.107+deb13-arm64
linux-image-6.12.108+deb13-arm64-16k
`

func TestNewestImage(t *testing.T) {
	want := map[string]string{
		"5.10":      "linux-image-5.10.0-32-amd64",
		"6.1":       "linux-image-6.1.0-50-amd64",
		"6.1-rt":    "linux-image-6.1.0-50-rt-amd64",
		"6.12":      "linux-image-6.12.107+deb13-amd64",
		"6.12-full": "linux-image-6.12.107+deb13-amd64",
		"7.2":       "linux-image-7.10.1+deb14-amd64",
		"arm64":     "linux-image-6.12.107+deb13-arm64",
	}
	for _, k := range kernels() {
		got, err := newestImage(strings.Fields(indexNames), k)
		if err != nil || got != want[k.name] {
			t.Errorf("%s: got %q, %v; want %q", k.name, got, err, want[k.name])
		}
	}
}

func TestNewestImageNone(t *testing.T) {
	k := kernel{name: "x", suite: "sid", series: "9.", arch: "amd64"}
	_, err := newestImage(strings.Fields(indexNames), k)
	if err == nil || !strings.Contains(err.Error(), "VMTEST_MIRROR") {
		t.Errorf("error does not say what to do: %v", err)
	}
}

func TestFilePackages(t *testing.T) {
	stanza := "Package: linux-image-7.2.13+deb14-amd64\nVersion: 7.2.13-1\n" +
		"Depends: dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), " +
		"linux-binary-7.2.13+deb14-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)\nSize: 1892\n"
	want := []string{"linux-base-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"}
	if got := filePackages(field(stanza, "Depends")); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := filePackages("kmod, linux-base (>= 4.3~), initramfs-tools"); got != nil {
		t.Errorf("an image with all files: got %q", got)
	}
}

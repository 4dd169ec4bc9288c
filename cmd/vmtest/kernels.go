package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// A kernel is one entry of the list that -kernel chooses from.
type kernel struct {
	name   string // value of -kernel
	suite  string // Debian suite that carries it
	series string // prefix of its version, with the dot
	arch   string // Debian name of the architecture
	flavor string // of the kernel, like rt; "" is the ordinary one
	image  string // kernel whose files it boots, if not its own
	append string // more words for its command line
}

// folder names the part of the cache that holds its files.
func (k kernel) folder() string {
	if k.image != "" {
		return k.image
	}
	return k.name
}

func kernels() []kernel {
	return []kernel{
		{name: "5.10", suite: "bullseye", series: "5.10.", arch: "amd64"},
		{name: "6.1", suite: "bookworm", series: "6.1.", arch: "amd64"},
		{name: "6.1-rt", suite: "bookworm", series: "6.1.", arch: "amd64", flavor: "rt"},
		{name: "6.12", suite: "trixie", series: "6.12.", arch: "amd64"},
		{name: "6.12-full", suite: "trixie", series: "6.12.", arch: "amd64", image: "6.12", append: "preempt=full"},
		{name: "7.2", suite: "sid", series: "7.", arch: "amd64"},
		{name: "arm64", suite: "trixie", series: "6.12.", arch: "arm64"},
	}
}

// foreign reports whether this machine's programs cannot run on the kernel.
func (k kernel) foreign() bool { return k.arch != "amd64" }

func kernelNames() []string {
	var names []string
	for _, k := range kernels() {
		names = append(names, k.name)
	}
	return names
}

func findKernel(name string) (kernel, error) {
	for _, k := range kernels() {
		if k.name == name {
			return k, nil
		}
	}
	known := strings.Join(kernelNames(), ", ")
	if name == "" {
		return kernel{}, fmt.Errorf("-kernel: missing; choose one of %s", known)
	}
	return kernel{}, fmt.Errorf("-kernel: unknown kernel %q; choose one of %s", name, known)
}

func listKernels(w io.Writer) {
	for _, k := range kernels() {
		fmt.Fprintf(w, "%-9s newest %s of Debian %s, %s\n", k.name, strings.Join(strings.Fields(k.series+"x "+k.flavor+" "+k.append), " "), k.suite, k.arch)
	}
}

// newestImage picks the newest kernel of k's series and flavor (not another
// flavor, unsigned or debug) from the names of packages.
func newestImage(names []string, k kernel) (string, error) {
	flavor := ""
	if k.flavor != "" {
		flavor = "-" + k.flavor
	}
	fitting := regexp.MustCompile(`^linux-image-` + regexp.QuoteMeta(k.series) +
		`[0-9.-]*(\+deb[0-9]+)?` + flavor + `-` + k.arch + `$`)
	best := ""
	for _, name := range names {
		if fitting.MatchString(name) && (best == "" || olderName(best, name)) {
			best = name
		}
	}
	if best == "" {
		return "", fmt.Errorf("suite %s offers no linux-image-%s* for %s; a mirror that has it can be set with VMTEST_MIRROR",
			k.suite, k.series, k.arch)
	}
	return best, nil
}

// olderName compares the numbers in two package names of the same form.
func olderName(a, b string) bool {
	x, y := numbers(a), numbers(b)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return len(x) < len(y)
}

func numbers(s string) []int {
	var out []int
	for _, digits := range regexp.MustCompile(`[0-9]+`).FindAllString(s, -1) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			continue
		}
		out = append(out, n)
	}
	return out
}

// filePackages names the packages that an image's Depends field splits its
// files into; older suites have everything in the image itself.
func filePackages(depends string) []string {
	var out []string
	for _, dep := range strings.Split(depends, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(dep), " ")
		for _, prefix := range []string{"linux-base-", "linux-binary-", "linux-modules-"} {
			if strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		}
	}
	return out
}

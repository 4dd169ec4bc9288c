//go:build vm

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// enterRelease runs a command in a root of its own, with its own copy of the libraries, and namespaces of mounts, processes and the network.
const enterRelease = `
	for dir in dev sys proc; do mkdir -p "$1/$dir"; done
	mount --rbind /dev "$1/dev"
	mount --rbind /sys "$1/sys"
	mount -t proc proc "$1/proc"
	root=$1
	shift
	exec chroot "$root" "$@"`

// suites are Debian 11, 12, 13 and sid: rdma-core 33 to 65.
var suites = []string{"bullseye", "bookworm", "trixie", "sid"}

// release is a root with a release's libibverbs and C library, and the program datapath, which was compiled for them, stripped, and has the
// release's name.
func release(t *testing.T, suite string) (root string) {
	t.Helper()
	from := absolute(t, filepath.Join("../../.vmtest/libibverbs", suite))
	sources := absolute(t, "testdata/vm")
	if _, err := os.Stat(from); err != nil {
		t.Fatalf(".ci/vmtest puts the releases there: %v", err)
	}
	root = t.TempDir()
	sh(t, `libraries=usr/lib/x86_64-linux-gnu
mkdir -p %[2]s/$libraries/libibverbs %[2]s/etc/libibverbs.d
ln -s usr/lib %[2]s/lib
ln -s usr/lib64 %[2]s/lib64
cp -a %[1]s/usr/lib64 %[2]s/usr
cp -a %[1]s/etc/libibverbs.d/rxe.driver %[2]s/etc/libibverbs.d
cd %[1]s/$libraries
cp -a libibverbs.so* libnl-*.so* libc[.-]*so* libpthread*so* libdl*so* ld-* %[2]s/$libraries
cp -a libibverbs/librxe-* %[2]s/$libraries/libibverbs
gcc -Wall -Werror -s --sysroot=%[1]s -B%[1]s/$libraries -L%[1]s/$libraries -o %[2]s/%[3]s %[4]s/datapath.c -libverbs -lpthread`, from, root, suite, sources)
	return root
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// inRelease starts datapath there.
func inRelease(t *testing.T, root, suite, options string) *datapath {
	t.Helper()
	command := append([]string{"--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "private", "sh", "-euc", enterRelease, "sh", root, "/" + suite, "wait=1"}, strings.Fields(options)...)
	return startDatapathBy(t, exec.Command("unshare", command...))
}

// Programs in a root of each release post and poll what they count: those that ran before trace, and later ones, which use libraries that are
// known then.
func TestVMDatapathReleases(t *testing.T) {
	type run struct {
		suite, options, opcode string
		before                 *datapath
	}
	var runs []run
	roots := make(map[string]string)
	for _, suite := range suites {
		roots[suite] = release(t, suite)
		runs = append(runs, run{suite: suite, options: "op=write batch=4 count=40 signal=4", opcode: "RDMA_WRITE"})
		if suite != "bullseye" { // its provider has no ibv_wr_*
			runs = append(runs, run{suite: suite, options: "api=wr count=30", opcode: "SEND"})
		}
	}
	for i, r := range runs {
		runs[i].before = inRelease(t, roots[r.suite], r.suite, r.options)
	}
	trace := startTool(t, "ttached", "trace", programTotals("comm"))
	want := make(map[string]uint64)
	for _, r := range runs {
		after := inRelease(t, roots[r.suite], r.suite, r.options)
		for _, d := range []*datapath{r.before, after} {
			d.finish(t).processCounts(r.opcode).addTo(want, r.suite)
		}
	}
	sameCounts(t, trace, want)
}

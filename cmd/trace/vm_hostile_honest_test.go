//go:build vm

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A copiedProvider begins a command that uses its own copy of rxe's library.
func copiedProvider(dir string) string { return "env RDMAV_DRIVERS=" + dir + "/librxe " }

// providerCopy makes a folder with such a copy, of a user.
func providerCopy(t *testing.T, dir, owner string) (folder string) {
	t.Helper()
	sh(t, "mkdir -p %s && cp %s/librxe-rdmav34.so %[1]s && chown -R %[3]s:%[3]s %[1]s", dir, libraryFolder, owner)
	return dir
}

// withoutSections removes the table of sections from a library: nobody but a debugger needs it.
func withoutSections(t *testing.T, library string) {
	t.Helper()
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[0x28:0x30]) // e_shoff
	clear(data[0x3c:0x40]) // e_shnum and e_shstrndx
	if err := os.WriteFile(library, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// honestWays are how honest programs come to the library of their provider: each is the beginning of a command.
func honestWays(t *testing.T, dir string) map[string]string {
	t.Helper()
	home := providerCopy(t, dir+"/home", "1000")
	sections := providerCopy(t, dir+"/sections", "0")
	withoutSections(t, sections+"/librxe-rdmav34.so")
	sh(t, "mkdir %s/mounted && mount -t tmpfs -o nosuid,mode=755 none %[1]s/mounted", dir)
	t.Cleanup(func() { sh(t, "umount -l %s/mounted", dir) })
	mounted := providerCopy(t, dir+"/mounted/provider", "0")
	own := fmt.Sprintf("mount -t tmpfs none %s/own && cp %s/* %[1]s/own && mount --bind %[1]s/own %[2]s && exec ", dir, libraryFolder)
	sh(t, "mkdir %s/own %[1]s/replaced", dir)
	return map[string]string{
		"root":                         "",
		"a user":                       asUser,
		"another user":                 asOther,
		"a user's own library":         asUser + copiedProvider(home),
		"root, with a user's library":  copiedProvider(home),
		"a library without sections":   asUser + copiedProvider(sections),
		"a library on a nosuid mount":  asUser + copiedProvider(mounted),
		"a container's own library":    "unshare --mount sh -ec '" + own + "\"$0\" \"$@\"' ",
		"a container of a user":        "unshare --mount sh -ec '" + own + asUser + "\"$0\" \"$@\"' ",
		"a user namespace":             asUser + "unshare --user --map-root-user --mount ",
		"a library that was replaced":  copiedProvider(providerCopy(t, dir+"/replaced", "0")),
		"a library that a user copies": asUser + "unshare --user --map-root-user --mount sh -ec '" + own + "\"$0\" \"$@\"' ",
	}
}

// Programs of root and of users post and poll what is counted, whoever's library they use: those that ran before trace, and later ones. A user's
// second program is seen from its first call. A process of root that maps a user's library has no breakpoint in it.
func TestVMHostileHonest(t *testing.T) {
	dir := t.TempDir()
	sh(t, "chmod 755 %s %s", dir, filepath.Dir(dir))
	sh(t, "gcc -Wall -Werror -O2 -o %s/datapath testdata/vm/datapath.c -libverbs -lpthread", dir)
	ways := honestWays(t, dir)
	programs := func() map[string]*datapath {
		all := make(map[string]*datapath)
		for name, begins := range ways {
			all[name] = startDatapathBy(t, exec.Command("sh", "-ec", "exec "+begins+dir+"/datapath op=write count=50 wait=1"))
		}
		return all
	}
	want := make(map[string]uint64)
	finish := func(all map[string]*datapath) {
		for name, d := range all {
			pid := d.cmd.Process.Pid
			t.Logf("process %d: %s", pid, name)
			d.finish(t).processCounts("RDMA_WRITE").addTo(want, pid)
		}
	}
	before := programs()
	sh(t, "cp %s/replaced/librxe-rdmav34.so %[1]s/new && mv %[1]s/new %[1]s/replaced/librxe-rdmav34.so", dir)
	idle := startJob(t, "env", "LD_PRELOAD="+dir+"/home/librxe-rdmav34.so", "sleep", "1000")
	waitUntil(t, "the library is mapped", func() bool { return strings.Contains(sh(t, "cat /proc/%d/maps", idle.cmd.Process.Pid), "librxe") })
	code := libraryCode(t, idle.cmd.Process.Pid)
	trace := startTool(t, "ttached", "trace", programTotals("pid"))
	after := programs()
	waitQuiet(trace)
	if !bytes.Equal(code, libraryCode(t, idle.cmd.Process.Pid)) {
		t.Error("a process of root has a breakpoint in a library of a user, as that user uses it")
	}
	finish(before)
	finish(after)
	second := startDatapathBy(t, exec.Command("sh", "-ec", "exec "+asUser+dir+"/datapath op=write count=50 wait=1"))
	finish(map[string]*datapath{"a user's second program": second})
	idle.cmd.Process.Kill()
	sameCounts(t, trace, want)
}

// A user makes a file on an overlay that has the number, size and time of a library in a container's: it is not taken for that one, whose programs
// are seen.
func TestVMHostileTwin(t *testing.T) {
	h := buildHostile(t)
	data := buildDatapath(t)
	dir := h.dir
	sh(t, "mkdir %s/honest %[1]s/twin && chmod 777 %[1]s/twin && mount -t tmpfs -o mode=755 none %[1]s/honest && cd %[1]s/honest && touch $(seq 9) && mkdir %[1]s/honest/lower %[1]s/honest/empty && cp %s/librxe* %[1]s/honest/lower", dir, libraryFolder)
	t.Cleanup(func() { sh(t, "umount -l %s/honest", dir) })
	honest := func() *datapath {
		return startDatapathBy(t, exec.Command("unshare", "--mount", "sh", "-ec", fmt.Sprintf(
			"mount -t overlay overlay -o lowerdir=%s/honest/lower:%[1]s/honest/empty %s && exec %s op=write count=50 wait=1", dir, libraryFolder, data)))
	}
	original := fmt.Sprintf("%s/honest/lower/librxe-rdmav34.so", dir)
	twin := fmt.Sprintf(`mount -t tmpfs none %[1]s/twin; cd %[1]s/twin; mkdir lower empty all
until [ "$(stat -c %%i lower/f)" = "$(stat -c %%i %[2]s)" ]; do mv lower/f empty/f$((n += 1)) || true; : >lower/f; done
rm -rf empty/f*
cat %[2]s >lower/f; touch -r %[2]s lower/f; chmod 755 lower/f
mount -t overlay overlay -o lowerdir=%[1]s/twin/lower:%[1]s/twin/empty all`, dir, original)
	names := dir + "/hostile same " + dir + "/twin/all/f"
	liar := asUser + "unshare --user --map-root-user --mount sh -ec '" + twin + "\nexec " + names + "'"
	if os.Getenv("VMTEST_KERNEL") == "5.10" { // there only root makes an overlay
		liar = "unshare --mount sh -ec '" + twin + "\nexec " + asUser + names + "'"
	}
	startQuiet(t, "sh", "-ec", "exec "+liar)
	trace := startTool(t, "ttached", "trace", programTotals("pid"))
	d := honest()
	waitQuiet(trace)
	want := map[string]uint64{}
	d.finish(t).processCounts("RDMA_WRITE").addTo(want, d.cmd.Process.Pid)
	sameCounts(t, trace, want)
}

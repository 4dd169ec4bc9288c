package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The oracle of these tests is what the kernel counts of a disk: Documentation/block/stat.rst.

// What a file system with a journal does to a disk, with flushes and discards, and what is merged, is what the kernel counts.
func TestBlockCounts(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skipf("needs a file system with a journal: %v", err)
	}
	checkDisk(t, loopDisk(t))
}

// A bio larger than the disk takes is split.
func TestBlockSplit(t *testing.T) { checkSplits(t, loopDisk(t)) }

// loopDisk makes a disk of a file.
func loopDisk(t *testing.T) string {
	t.Helper()
	requireLive(t)
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		t.Skipf("needs a loop device: %v", err)
	}
	disk := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", disk).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return filepath.Base(disk)
}

func checkDisk(t *testing.T, disk string) {
	t.Helper()
	script := fmt.Sprintf(`mkfs.ext4 -q /dev/%s; mount /dev/%[1]s %[2]s
		for i in 1 2 3 4 5; do dd if=/dev/zero of=%[2]s/$i bs=4k count=$i conv=fsync status=none; done
		rm %[2]s/5; sync; fstrim %[2]s; umount %[2]s
		dd if=/dev/%[1]s of=/dev/null bs=64k count=30 iflag=direct status=none`, disk, t.TempDir())
	got, want := measureDisk(t, disk, script, fmt.Sprintf(`
		block:complete / disk == %q / { @ios[op] = count(); @bytes[op] = sum((uint64)bytes); @merged[op] = sum(merged) }
		block:merge / disk == %[1]q / { @merges[op] = count() }
		block:complete / disk == %[1]q && comm == nil && op != flush / { @unknown[op] = count() }
		block:complete / disk == %[1]q && status != OK / { @failed[op] = count() }`, disk))
	for name, n := range maps.Clone(want) {
		if op, ok := strings.CutPrefix(name, "merged "); ok && op != "discard" {
			want["merges "+op] = n
		}
	}
	delete(got, "merges discard") // where a request has many ranges, there is no tracepoint (bio_attempt_discard_merge)
	for name, n := range maps.Clone(got) {
		if what, ok := strings.CutSuffix(name, " write_zeroes"); ok { // the kernel counts it as a write
			got[what+" write"] += n
			delete(got, name)
		}
	}
	if slices.Contains([]string{"5.10", "6.1"}, os.Getenv("VMTEST_KERNEL")) { // without block_io_start
		delete(got, "unknown write")
	}
	compareTables(t, got, want)
	if want["ios flush"] == 0 || want["ios write"] == 0 || want["ios read"] == 0 {
		t.Error("there was nothing to count")
	}
}

func checkSplits(t *testing.T, disk string) {
	t.Helper()
	const reads, most = 20, 4
	file := "/sys/block/" + disk + "/queue/max_sectors_kb"
	usual, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if page := os.Getpagesize(); page > most<<10 {
		t.Skipf("a page has %d bytes here, and a request has at least a page", page)
	}
	if err := os.WriteFile(file, []byte(fmt.Sprint(most)), 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, usual, 0); err != nil {
			t.Error(err)
		}
	}()
	script := fmt.Sprintf("dd if=/dev/%s of=/dev/null bs=32k count=%d iflag=direct status=none", disk, reads)
	got, want := measureDisk(t, disk, script, fmt.Sprintf(`
		block:split / disk == %q && comm == "dd" && bytes == 4KiB && rest == sector + 8 / { @splits[op] = count() }
		block:split / disk == %[1]q && !(comm == "dd" && bytes == 4KiB && rest == sector + 8) / { @odd[op] = count() }`, disk))
	compareTables(t, got, map[string]int64{"splits read": want["ios read"] - reads})
	if want["ios read"] != reads*32/most {
		t.Errorf("%d reads", want["ios read"])
	}
}

// measureDisk runs a script, and returns the maps of a program and what the kernel counts of a disk meanwhile. Others may read the disk
// too, like udev after each change. So the script itself reads the kernel's counts, before and after, while the probes are attached
// and nobody has used the disk for a while.
func measureDisk(t *testing.T, disk, script, program string) (got, want map[string]int64) {
	t.Helper()
	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	settled := fmt.Sprintf(`settled() {
			until now=$(cat %[1]s); sleep 0.5; [ "$now" = "$(cat %[1]s)" ]; do :; done
			echo "$now"
		}
		`, statFile(disk))
	if out, err := exec.Command("sh", "-c", settled+"settled").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got = tablesOf(t, fmt.Sprintf("%ssettled >%s\n%s\nsettled >%s", settled, before, script, after), program)
	return got, less(statOf(t, after), statOf(t, before))
}

var rowLine = regexp.MustCompile(`(?m)^@(\w+)\[(.*)\]: (\d+)$`)

// tablesOf runs a script, and returns the maps of a program meanwhile, by their names and keys, like "ios read". No event may be lost.
func tablesOf(t *testing.T, script, program string) map[string]int64 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	var notes strings.Builder
	cmd := exec.Command("trace", "--strict", "-c", "sh -e "+file, program)
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, notes.String())
	}
	table := make(map[string]int64)
	for _, row := range rowLine.FindAllStringSubmatch(string(out), -1) {
		n, err := strconv.ParseInt(row[3], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		table[row[1]+" "+strings.ReplaceAll(row[2], ", ", " ")] = n
	}
	return table
}

// statFile is where the kernel counts the requests of a disk.
func statFile(disk string) string { return "/sys/block/" + disk + "/stat" }

// statOf are the counts that such a file has, by what is counted and the operation.
func statOf(t *testing.T, file string) map[string]int64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var n [17]int64
	for i, field := range strings.Fields(string(text)) {
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	counts := map[string]int64{"ios flush": n[15]}
	for op, at := range map[string]int{"read": 0, "write": 4, "discard": 11} {
		counts["ios "+op], counts["merged "+op], counts["bytes "+op] = n[at], n[at+1], n[at+2]*512
	}
	return counts
}

// less subtracts what was there before.
func less(after, before map[string]int64) map[string]int64 {
	diff := make(map[string]int64)
	for name, n := range after {
		diff[name] = n - before[name]
	}
	return diff
}

// compareTables compares all that one of two tables has; 0 is like nothing.
func compareTables(t *testing.T, got, want map[string]int64) {
	t.Helper()
	names := maps.Clone(want)
	maps.Copy(names, got)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if got[name] != want[name] {
			t.Errorf("%s is %d, the kernel counts %d", name, got[name], want[name])
		} else {
			t.Logf("%s is %d", name, got[name])
		}
	}
}

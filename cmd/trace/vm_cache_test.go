//go:build vm

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const pageSize = 4096

// Reads of single pages that are in the page cache or not, as fincore sees them.
func TestVMCacheRead(t *testing.T) {
	dir := mountDisk(t)
	f := coldFile(t, filepath.Join(dir, "pages"), 64)
	advise(t, f, unix.FADV_RANDOM) // nothing is read ahead
	hot, into := coldFile(t, filepath.Join(dir, "hot"), 1), coldFile(t, filepath.Join(dir, "into"), 64)
	sent := coldFile(t, filepath.Join(dir, "sent"), 16)
	readPages(t, hot, 0, 1)
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	this := fmt.Sprintf("inode == %d && dev == %d && disk == \"nvme0n1\"", stat.Ino, unix.Major(stat.Dev)<<20|unix.Minor(stat.Dev))
	trace := startTool(t, "Attached", "trace", "-p", fmt.Sprint(os.Getpid()), fmt.Sprintf(`
		cache:read / file == "pages" && %s / {
			@reads = count(); @bytes = sum((uint64)bytes); @misses = sum((uint64)misses); @added = sum((uint64)added); @last = max(offset)
		}
		cache:read / file == "pages" && misses == 0 / { @hits = count() }
		cache:read / file == "hot" / { @hot = count(); @hotmisses = sum((uint64)misses) }
		cache:read / file == "sent" / { @sent = sum((uint64)bytes); @sentmisses = max((uint64)misses); @sentadded = sum((uint64)added) }`, this))
	for page := 62; page >= 0; page -= 2 {
		readPages(t, f, page, 1)
	}
	half := cached(t, f)
	for page := range 64 {
		readPages(t, f, page, 1)
	}
	all := cached(t, f)
	for page := range 64 {
		readPages(t, f, page, 1)
	}
	readDirectly(t, f.Name())
	readInto(t, hot, into)
	sendFile(t, sent, 16*pageSize)
	got := countsOf(trace.stop(t))
	t.Logf("fincore counts %d and %d pages, trace %v", half, all, got)
	for name, want := range map[string]uint64{
		"@reads": 32 + 64 + 64, "@bytes": (32 + 64 + 64) * pageSize, "@misses": all, "@hits": 32 + 64, "@added": all * pageSize, "@last": 63 * pageSize,
		"@hot": 1, "@hotmisses": 0, "@sent": 16 * pageSize, "@sentmisses": 1, "@sentadded": cached(t, sent) * pageSize,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
	if half != 32 || all != 64 {
		t.Error("the kernel has read ahead")
	}
}

// Pages of a file come, change and go, as fincore sees them.
func TestVMCachePages(t *testing.T) {
	f := coldFile(t, filepath.Join(mountDisk(t), "pages"), 64)
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	trace := startTool(t, "Attached", "trace", fmt.Sprintf(`
		cache:add, cache:remove, cache:dirty, cache:readahead / inode == %d && disk == "nvme0n1" / {
			@bytes[probe] = sum((uint64)bytes); @last[probe] = max(offset)
		}
		cache:readahead / file == "pages" / { @ahead = sum((uint64)bytes) }`, stat.Ino))
	before := dirtied(t)
	readPages(t, f, 0, 64)
	there := cached(t, f)
	drop(t, f)
	if err := os.WriteFile(f.Name(), make([]byte, 16*pageSize), 0o644); err != nil { // it has no pages left to cut
		t.Fatal(err)
	}
	written := dirtied(t) - before
	changed := cached(t, f)
	drop(t, f)
	got := countsOf(trace.stop(t))
	t.Logf("fincore counts %d pages and then %d, the kernel %d changed ones; trace: %v", there, changed, written, got)
	for name, want := range map[string]uint64{
		"@bytes[cache:add]": (there + changed) * pageSize, "@bytes[cache:remove]": (there + changed) * pageSize, "@bytes[cache:dirty]": changed * pageSize,
		"@bytes[cache:readahead]": there * pageSize, "@ahead": there * pageSize,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
	if there != 64 || changed != 16 || written < 16 {
		t.Error("the test did something else")
	}
}

// The lines of cachestat add up to what the process has done, as fincore sees it.
func TestVMScriptCachestat(t *testing.T) {
	dir := mountDisk(t)
	f, mapped := coldFile(t, filepath.Join(dir, "read"), 64), coldFile(t, filepath.Join(dir, "mapped"), 64)
	advise(t, f, unix.FADV_RANDOM)
	trace := startTool(t, "Attached", "trace", "-p", fmt.Sprint(os.Getpid()), "cachestat", "--files")
	for range 3 {
		for page := range 64 {
			readPages(t, f, page, 1)
		}
	}
	touchPages(t, mapped)
	read, touched := cached(t, f), cached(t, mapped)
	waitUntil(t, "there is a line", func() bool { return regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `).MatchString(trace.out.String()) })
	time.Sleep(3 * time.Second)
	trace.end(t)
	var reads, misses, major uint64
	var disk float64
	for _, line := range strings.Split(trace.out.String(), "\n") {
		if cols := strings.Fields(line); len(cols) == 7 && strings.Count(cols[0], ":") == 2 {
			n := func(i int) (n uint64) { fmt.Sscan(cols[i], &n); return n }
			reads, misses, major = reads+n(1), misses+n(4), major+n(6)
			disk += sizeOf(t, cols[5])
		}
	}
	t.Logf("fincore counts %d and %d pages; cachestat %d reads, %d misses, %g bytes from disk, %d faults\n%s",
		read, touched, reads, misses, disk, major, trace.out.String())
	if reads != 3*64 || misses != read || major != touched || uint64(disk) != (read+touched)*pageSize || touched != 16 {
		t.Error("they differ")
	}
}

// touchPages reads each fourth page of a file in memory.
func touchPages(t *testing.T, f *os.File) {
	t.Helper()
	memory, err := unix.Mmap(int(f.Fd()), 0, 64*pageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	if err := unix.Madvise(memory, unix.MADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	for page := 0; page < 64; page += 4 {
		if memory[page*pageSize] != 'x' {
			t.Fatal("not the file")
		}
	}
}

// dirtied returns how many pages were changed since the kernel started.
func dirtied(t *testing.T) (pages uint64) {
	t.Helper()
	fmt.Sscan(sh(t, "cat /proc/sys/vm/stat_refresh; sed -n 's/^nr_dirtied //p' /proc/vmstat"), &pages) // each CPU counts for itself until then
	return pages
}

// mountDisk makes a file system on an NVMe disk.
func mountDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sh(t, "mkfs.ext4 -q -F /dev/nvme0n1; mount /dev/nvme0n1 %s", dir)
	t.Cleanup(func() { sh(t, "umount %s", dir) })
	return dir
}

// coldFile writes a file of so many pages, and leaves none of them in the page cache.
func coldFile(t *testing.T, name string, pages int) *os.File {
	t.Helper()
	if err := os.WriteFile(name, []byte(strings.Repeat("x", pages*pageSize)), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	drop(t, f)
	return f
}

// drop removes a file from the page cache.
func drop(t *testing.T, f *os.File) {
	t.Helper()
	waitUntil(t, f.Name()+" is not in the page cache", func() bool {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		advise(t, f, unix.FADV_DONTNEED)
		return cached(t, f) == 0
	})
}

func advise(t *testing.T, f *os.File, advice int) {
	t.Helper()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, advice); err != nil {
		t.Fatal(err)
	}
}

// cached returns how many pages of a file are in the page cache.
func cached(t *testing.T, f *os.File) (pages uint64) {
	t.Helper()
	fmt.Sscan(sh(t, "fincore -n -o pages %s", f.Name()), &pages)
	return pages
}

// readPages reads so many pages at once.
func readPages(t *testing.T, f *os.File, first, n int) {
	t.Helper()
	if got, err := f.ReadAt(make([]byte, n*pageSize), int64(first*pageSize)); err != nil || got != n*pageSize {
		t.Fatalf("%s: %d bytes: %v", f.Name(), got, err)
	}
}

// readDirectly reads a page past the page cache.
func readDirectly(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	into, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // as it must be aligned
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(into)
	if n, err := f.Read(into); n != pageSize || err != nil {
		t.Fatal(n, err)
	}
}

// readInto reads a page to memory that is another file, whose pages the page cache lacks.
func readInto(t *testing.T, f, memory *os.File) {
	t.Helper()
	into, err := unix.Mmap(int(memory.Fd()), 0, 64*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(into)
	if err := unix.Madvise(into, unix.MADV_SEQUENTIAL); err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadAt(into[:pageSize], 0); n != pageSize || err != nil {
		t.Fatal(n, err)
	}
	if cached(t, memory) == 0 {
		t.Error("the memory was not read from its file")
	}
}

// sendFile sends a file to nowhere.
func sendFile(t *testing.T, f *os.File, bytes int) {
	t.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	for sent := 0; sent < bytes; {
		n, err := unix.Sendfile(int(nowhere.Fd()), int(f.Fd()), nil, bytes-sent)
		if n <= 0 || err != nil {
			t.Fatal(n, err)
		}
		sent += n
	}
}

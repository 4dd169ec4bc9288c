//go:build linux

package verbs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// struct ibv_context of infiniband/verbs.h, the same in rdma-core 33 to 65.
const (
	cmdFD       = 264 // int, the open device
	abiCompat   = 320 // void *, ~0 unless a program was linked with a library from before 2008
	contextSize = abiCompat + 8
)

// calls are the functions in struct ibv_context_ops of a context.
var calls = map[string]int{"poll_cq": 96, "post_srq_recv": 168, "post_send": 208, "post_recv": 216}

// Calls are the names of the functions that can be followed.
func Calls() []string {
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A region is a mapping of a process: a line of /proc/PID/maps.
type region struct {
	start, end, offset uint64
	perms              string
	inode              uint64 // 0: of no file
	path               string
}

// regionsOf returns the mappings of a process, by address.
func regionsOf(pid int) ([]region, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []region
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		r, err := parseRegion(lines.Text())
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// parseRegion reads addresses, permissions, offset, device, inode and path: proc_pid_maps(5).
func parseRegion(line string) (r region, err error) {
	var device string
	if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &r.start, &r.end, &r.perms, &r.offset, &device, &r.inode); err != nil {
		return region{}, fmt.Errorf("%q is not a mapping of a process", line)
	}
	if fields := strings.Fields(line); len(fields) > 5 {
		r.path = strings.Join(fields[5:], " ")
	}
	return r, nil
}

// code returns the file and the offset in it of a function of the process; ok is false if it is not in an executable mapping of a file.
func code(pid int, regions []region, address uint64) (p place, ok bool) {
	i := slices.IndexFunc(regions, func(r region) bool { return r.start <= address && address < r.end })
	if i < 0 || regions[i].inode == 0 || !strings.Contains(regions[i].perms, "x") {
		return place{}, false
	}
	r := regions[i]
	return place{
		offset:  address - r.start + r.offset,
		path:    fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, r.start, r.end),
		library: r.path,
	}, true
}

// A file is what the kernel takes for one file when it attaches a uprobe.
type file struct {
	device, inode, size uint64
	changed             unix.Timespec
}

// anyOverlay is the device of all overlays.
const anyOverlay = ^uint64(0)

// fileOf identifies a file. Containers from one image have overlays of their own over one file, where a uprobe sees all of them: there the
// device is not compared.
func fileOf(path string) (file, error) {
	var stat unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Stat(path, &stat), unix.Statfs(path, &fs)); err != nil {
		return file{}, err
	}
	f := file{stat.Dev, stat.Ino, uint64(stat.Size), stat.Mtim}
	if fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		f.device = anyOverlay
	}
	return f, nil
}

// devicesOf returns the file descriptors of the open devices of a process.
func devicesOf(pid int) ([]int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(filepath.Base(target), "uverbs") {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// gone reports whether an error means that the process has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// read reads the memory of a process, at most len(buf) bytes, up to the first page that is not there.
func read(pid int, address uint64, buf []byte) (int, error) {
	return unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}},
		[]unix.RemoteIovec{{Base: uintptr(address), Len: len(buf)}}, 0)
}

// searched bounds how much memory of a process is searched. Contexts are allocated early, and small mappings are searched first.
const searched = 1 << 30

// contexts calls found with each context of an open device in the memory of a process, until found reports that it has all. Programs
// have contexts in what the allocator gives out: private memory that can be written and belongs to no file.
func contexts(pid int, regions []region, devices []int, found func(context []byte) (all bool)) error {
	var heaps []region
	for _, r := range regions {
		if strings.HasPrefix(r.perms, "rw-p") && r.inode == 0 && (r.path == "" || r.path == "[heap]" || strings.HasPrefix(r.path, "[anon")) {
			heaps = append(heaps, r)
		}
	}
	slices.SortStableFunc(heaps, func(a, b region) int {
		if aHeap, bHeap := a.path == "[heap]", b.path == "[heap]"; aHeap != bHeap {
			return map[bool]int{true: -1, false: 1}[aHeap]
		}
		return int(min(a.end-a.start, searched)) - int(min(b.end-b.start, searched))
	})
	buf := make([]byte, 1<<20)
	left := uint64(searched)
	for _, r := range heaps {
		for at := r.start; at < r.end && left > 0; {
			n, err := read(pid, at, buf[:min(uint64(len(buf)), r.end-at)])
			if err != nil || n < contextSize {
				if errors.Is(err, unix.EPERM) || gone(err) {
					return err
				}
				break // a page that cannot be read
			}
			left -= min(left, uint64(n))
			if search(buf[:n], devices, found) {
				return nil
			}
			at += uint64(n)
			if at < r.end {
				at -= contextSize // one may be across the edge
			}
			if n < contextSize+8 {
				break
			}
		}
	}
	return nil
}

// search finds the contexts in a piece of memory, and reports whether found has all.
func search(memory []byte, devices []int, found func(context []byte) bool) bool {
	for at := 0; at+contextSize <= len(memory); at += 8 {
		if binary.NativeEndian.Uint64(memory[at+abiCompat:]) != ^uint64(0) {
			continue
		}
		fd := int(int32(binary.NativeEndian.Uint32(memory[at+cmdFD:])))
		if slices.Contains(devices, fd) && found(memory[at:at+contextSize]) {
			return true
		}
	}
	return false
}

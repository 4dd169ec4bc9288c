//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// struct ibv_context of infiniband/verbs.h, the same in rdma-core 33 to 65.
const (
	cmdFD       = 264 // int, the open device
	abiCompat   = 320 // void *, ~0 unless a program was linked with a library from before 2008
	contextSize = abiCompat + 8
)

// calls are the functions in struct ibv_context_ops of a context.
var calls = map[string]int{"poll_cq": 96, "post_srq_recv": 168, "post_send": 208, "post_recv": 216}

// qpCalls are the functions of a struct ibv_qp_ex, which ibv_wr_* calls. One that the QP does not have is NULL; a QP that was not made for
// them has none.
var qpCalls = map[string]int{
	"wr_atomic_cmp_swp": 184, "wr_atomic_fetch_add": 192, "wr_bind_mw": 200, "wr_local_inv": 208, "wr_rdma_read": 216, "wr_rdma_write": 224,
	"wr_rdma_write_imm": 232, "wr_send": 240, "wr_send_imm": 248, "wr_send_inv": 256, "wr_send_tso": 264, "wr_set_inline_data": 288,
	"wr_set_inline_data_list": 296, "wr_set_sge": 304, "wr_set_sge_list": 312, wrStart: 320, "wr_complete": 328, wrAbort: 336,
	"wr_atomic_write": 344, "wr_flush": 352,
}

// cqCalls are the functions of a struct ibv_cq_ex. One that the program did not ask for is NULL; a CQ that was made without extensions has none.
var cqCalls = map[string]int{
	startPoll: 144, "next_poll": 152, "end_poll": 160, "read_opcode": 168, "read_vendor_err": 176, "read_byte_len": 184, "read_imm_data": 192,
	"read_qp_num": 200, "read_src_qp": 208, "read_wc_flags": 216, readTicks: 248, "read_completion_wallclock_ns": 280,
}

const (
	startPoll = "start_poll"
	readTicks = "read_completion_ts"
)

// An object is a struct of libibverbs that has functions and begins with the address of its context.
type object struct {
	name  string // of its calls
	calls map[string]int
	// has is the function that each has that was made for these calls.
	has string
	// functions is where the first of them is, and sure the last that is one in all versions of the struct: behind it may be something else.
	functions, sure int
	size            int
}

var (
	qpObject = object{name: "ibv_wr_*", calls: qpCalls, has: wrStart, functions: 184, sure: qpCalls[wrAbort], size: 360}
	cqObject = object{name: "ibv_start_poll", calls: cqCalls, has: startPoll, functions: 144, sure: 280, size: 288}
	objects  = []object{qpObject, cqObject}
)

const (
	wrStart = "wr_start"
	wrAbort = "wr_abort"
	// sendCQ, recvCQ and qpNum, a uint32_t, are in struct ibv_qp.
	sendCQ, recvCQ, qpNum = 24, 32, 52
)

// struct ibv_device, the same: the names of the device and of its file.
const (
	deviceName     = 24
	deviceFile     = 88
	deviceNameSize = 64
)

// Calls are the names of the functions that can be followed.
func Calls() []string {
	return slices.Sorted(maps.Keys(calls))
}

// code returns the file and the offset in it of a function of the process; ok is false if it is not in an executable mapping of a file.
func code(pid int, regions []proc.Mapping, address uint64) (p place, ok bool) {
	i := slices.IndexFunc(regions, func(r proc.Mapping) bool { return r.Start <= address && address < r.End })
	if i < 0 || regions[i].Inode == 0 || !regions[i].Executable() {
		return place{}, false
	}
	r := regions[i]
	return place{
		function: function{offset: address - r.Start + r.Offset},
		path:     fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, r.Start, r.End),
		library:  r.Path,
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

// A handle is an open device of a process: its descriptor, and its name in /dev/infiniband, like uverbs0.
type handle struct {
	fd   int
	name string
}

// devicesOf returns the open devices of a process.
func devicesOf(pid int) ([]handle, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []handle
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		name := filepath.Base(target)
		if err != nil || !strings.HasPrefix(name, "uverbs") {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, handle{fd, name})
		}
	}
	return all, nil
}

func fdsOf(devices []handle) (fds []int) {
	for _, d := range devices {
		fds = append(fds, d.fd)
	}
	return fds
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

// heaps returns where the allocator of a process takes memory from: private memory that can be written and belongs to no file. What is searched
// first comes first.
func heaps(regions []proc.Mapping) []proc.Mapping {
	var all []proc.Mapping
	for _, r := range regions {
		if strings.HasPrefix(r.Perms, "rw-p") && r.Inode == 0 && (r.Path == "" || r.Path == "[heap]" || strings.HasPrefix(r.Path, "[anon")) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b proc.Mapping) int {
		if aHeap, bHeap := a.Path == "[heap]", b.Path == "[heap]"; aHeap != bHeap {
			return map[bool]int{true: -1, false: 1}[aHeap]
		}
		return int(min(a.End-a.Start, searched)) - int(min(b.End-b.Start, searched))
	})
	return all
}

// scan calls visit with pieces of the memory of a process, and their addresses, until it reports that it has all. Each struct of a size is in
// one piece.
func scan(pid int, regions []proc.Mapping, size int, visit func(at uint64, memory []byte) (all bool)) error {
	buf := make([]byte, 1<<20)
	left := uint64(searched)
	for _, r := range heaps(regions) {
		for at := r.Start; at < r.End && left > 0; {
			n, err := read(pid, at, buf[:min(uint64(len(buf)), r.End-at)])
			if err != nil || n < size {
				if errors.Is(err, unix.EPERM) || gone(err) {
					return err
				}
				break // a page that cannot be read
			}
			left -= min(left, uint64(n))
			if visit(at, buf[:n]) {
				return nil
			}
			at += uint64(n)
			if at < r.End {
				at -= uint64(size+7) &^ 7 // one may be across the edge
			}
			if n < size+8 {
				break
			}
		}
	}
	return nil
}

// search finds the contexts in a piece of memory, and reports whether found has all.
func search(at uint64, memory []byte, devices []int, found func(at uint64, context []byte) bool) bool {
	for i := 0; i+contextSize <= len(memory); i += 8 {
		if binary.NativeEndian.Uint64(memory[i+abiCompat:]) != ^uint64(0) {
			continue
		}
		fd := int(int32(binary.NativeEndian.Uint32(memory[i+cmdFD:])))
		if slices.Contains(devices, fd) && found(at+uint64(i), memory[i:i+contextSize]) {
			return true
		}
	}
	return false
}

// searchObjects calls found with what may be an object: it begins with the address of a context, and has a function where each has one.
func searchObjects(memory []byte, contexts []uint64, found func(o object, memory []byte)) {
	for i := 0; i+8 <= len(memory); i += 8 {
		if !slices.Contains(contexts, binary.NativeEndian.Uint64(memory[i:])) {
			continue
		}
		for _, o := range objects {
			if i+o.size <= len(memory) && binary.NativeEndian.Uint64(memory[i+o.calls[o.has]:]) != 0 {
				found(o, memory[i:i+o.size])
			}
		}
	}
}

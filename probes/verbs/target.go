//go:build linux

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trace/probes/proc"
)

// process is a process at a time: numbers are used again.
type process struct {
	pid   int
	start uint64 // since boot, in ticks
}

// A party is who speaks by the memory of a process.
type party struct {
	user uint32 // its real user id
	// alone means that the process speaks for no other one of its user: it has several user ids, like a program with the set-user-ID bit, or it is in
	// another user namespace, in which one user may have many ids: user_namespaces(7).
	alone bool
	// payer is for whom what it costs counts: the user who made its user namespace, and may have 65,536 ids there (subuid(5)), or else its user.
	payer uint32
}

// firstUserNamespace is the inode of the first one, PROC_USER_INIT_INO of include/linux/proc_ns.h.
const firstUserNamespace = 0xEFFFFFFD

func partyOf(pid int) (p party, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nUid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := strings.Fields(string(line))
	if len(ids) != 4 {
		return p, unix.ESRCH
	}
	user, err := strconv.ParseUint(ids[0], 10, 32)
	if err != nil {
		return p, err
	}
	namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid)) // without it, it is not the first one
	mixed := slices.ContainsFunc(ids, func(id string) bool { return id != ids[0] })
	p = party{user: uint32(user), alone: mixed, payer: uint32(user)}
	if namespace != fmt.Sprintf("user:[%d]", firstUserNamespace) {
		p.alone, p.payer = true, proc.Payer(pid, p.user)
	}
	return p, nil
}

// startOf returns when a process began.
func startOf(pid int) (uint64, error) {
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return 0, err
	}
	return stat.Number(proc.StartTime)
}

// A target is a process that is looked into. All that is read of it is accounted for in the turn of its user, and given up if it does not come.
type target struct {
	process
	party
	*reader
	task    *task
	regions []proc.Mapping // sorted; nil before they are read
	pages   *pages
	opened  map[uint64]provider // by the beginning of the mapping
	flaw    error               // why what looks like a context is none that is followed
}

// A reader reads of processes: in turns, and giving up what does not come.
type reader struct {
	turns     *turns
	questions proc.Questions
	devices   numbering
}

// target begins to look into a process. What is in it is not read before it is identified.
func (r *reader) target(pid int, of *task) *target {
	return &target{process: process{pid: pid}, reader: r, task: of, opened: make(map[uint64]provider)}
}

func (t *target) identify() (err error) {
	if t.start, err = startOf(t.pid); err == nil {
		t.party, err = partyOf(t.pid)
	}
	return err
}

func (t *target) close() {
	if t.pages != nil && t.pages.file != nil {
		t.pages.file.Close()
	}
}

// same reports whether the number still belongs to the process, and the process to the same party: root may have become a user, by whom its memory
// was written.
func (t *target) same() bool {
	start, err := startOf(t.pid)
	p, wrong := partyOf(t.pid)
	return err == nil && wrong == nil && start == t.start && p == t.party
}

// ask reads something of the process that costs about so many bytes.
func ask[T any](t *target, cost int, read func() (T, error)) (answer T, err error) {
	return asked(t, cost, func() (T, error) { return proc.Ask(&t.questions, t.payer, read) })
}

// asked is ask with a question that is given up by itself.
func asked[T any](t *target, cost int, question func() (T, error)) (answer T, err error) {
	if err := t.turns.spend(t.task, cost); err != nil {
		return answer, err
	}
	began := time.Now()
	answer, err = question()
	t.turns.took(t.task, time.Since(began))
	if errors.Is(err, proc.ErrNoAnswer) || errors.Is(err, proc.ErrNotAsked) {
		err = &refusal{silent, err.Error()}
	}
	return answer, err
}

// askFile reads something of a file that is no program's.
func askFile[T any](t *target, cost int, read func() (T, error)) (answer T, err error) {
	if err := t.turns.spend(t.task, cost); err != nil {
		return answer, err
	}
	defer func(began time.Time) { t.turns.took(t.task, time.Since(began)) }(time.Now())
	return proc.AskFor(&t.questions, t.payer, proc.FilePatience, read)
}

// mostMappings bounds the list of what a process maps, in bytes. It may have 65,530 lines (vm.max_map_count), each with a path of 4 KiB.
const mostMappings = 32 << 20

// mapped reads what the process maps, once.
func (t *target) mapped() error {
	if t.regions != nil {
		return nil
	}
	regions, err := ask(t, lookCost, func() ([]proc.Mapping, error) {
		f, err := os.Open(fmt.Sprintf("/proc/%d/maps", t.pid))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		bounded := &io.LimitedReader{R: f, N: mostMappings}
		regions, err := proc.ReadMappings(bounded)
		if bounded.N == 0 {
			err = &refusal{crowded, fmt.Sprintf("its list of mappings has more than %d MiB", mostMappings>>20)}
		}
		return regions, err
	})
	if err != nil {
		return err
	}
	t.regions = regions
	size := 0
	for _, r := range regions {
		size += int(unsafe.Sizeof(r)) + len(r.Path)
	}
	t.turns.hold(t.task, size+2*piece)
	return t.turns.spend(t.task, size)
}

// region returns the mapping of an address.
func (t *target) region(address uint64) (r proc.Mapping, ok bool) {
	i, _ := slices.BinarySearchFunc(t.regions, address, func(r proc.Mapping, at uint64) int {
		if r.End <= at {
			return -1
		}
		return 1
	})
	if i == len(t.regions) || address < t.regions[i].Start {
		return r, false
	}
	return t.regions[i], true
}

// wide returns why the process is refused if it executes a program of 32 bits: the layouts are other ones. It has no memory above 4 GiB. (Its program
// is not opened: that may wait for a file system in user space.)
func (t *target) wide() error {
	if n := len(t.regions); n > 0 && t.regions[n-1].End <= 1<<32 {
		return &refusal{narrow, "it executes a program of 32 bits"}
	}
	return nil
}

// read reads memory, at most len(buf) bytes, up to the first page that is not there. A process can put a page that never answers in the place of one that is
// there at any moment, and a process of root's can become a user's, so all memory is read by helpers: that is no slower.
func (t *target) read(address uint64, buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	there, err := t.resident(address, len(buf))
	if err != nil || there == 0 {
		return 0, err
	}
	return asked(t, there, func() (int, error) { return t.questions.ReadMemory(t.payer, t.pid, address, buf[:there]) })
}

// A handle is an open device of a process: its descriptor, and its name in /dev/infiniband, like uverbs0.
type handle struct {
	fd   int
	name string
}

func fdsOf(devices []handle) (fds []int) {
	for _, d := range devices {
		fds = append(fds, d.fd)
	}
	return fds
}

// mostDescriptors bounds how many open files of a process are looked at.
const mostDescriptors = 1 << 17

// lookCost is what a system call about a process counts as, in bytes: about as long as it takes to read so many.
const lookCost = 256

// open returns the open devices of the process. What it asks the kernel for does not depend on what the process does.
func (t *target) open() ([]handle, error) {
	numbers := t.devices.numbers()
	if len(numbers) == 0 {
		return nil, nil
	}
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", t.pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var all []handle
	for seen := 0; ; {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if seen += len(names); seen > mostDescriptors {
			return nil, &refusal{crowded, fmt.Sprintf("it has more than %d open files", mostDescriptors)}
		}
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil {
				if device := deviceOf(t.pid, fd, numbers); device != "" {
					all = append(all, handle{fd, device})
				}
			}
		}
		if err := t.turns.spend(t.task, len(names)*lookCost); err != nil {
			return nil, err
		}
	}
}

// deviceOf returns the name of the device that is open by a descriptor, "" if it is not one: a file may have the name of one. The numbers of devices do
// not ask the file system of the file (AT_STATX_DONT_SYNC), which may be one in user space.
func deviceOf(pid, fd int, numbers map[uint64]string) string {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)
	return deviceIn(stat, err, numbers)
}

func deviceIn(stat unix.Statx_t, err error, numbers map[uint64]string) string {
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return ""
	}
	return numbers[unix.Mkdev(stat.Rdev_major, stat.Rdev_minor)]
}

// A numbering is which numbers the devices of this machine have.
type numbering struct {
	read func() map[uint64]string
	mu   sync.Mutex
	last map[uint64]string
	at   time.Time
}

// numbers returns the names of the devices by their numbers, as they were at most a moment ago.
func (n *numbering) numbers() map[uint64]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > settled {
		n.last, n.at = n.read(), time.Now()
	}
	return n.last
}

// deviceNumbers reads the numbers of /dev/infiniband/uverbs*.
func deviceNumbers() map[uint64]string {
	all := make(map[uint64]string)
	files, _ := filepath.Glob("/sys/class/infiniband_verbs/*/dev") // the pattern is right
	for _, file := range files {
		text, err := os.ReadFile(file)
		var major, minor uint32
		if _, wrong := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err == nil && wrong == nil {
			all[unix.Mkdev(major, minor)] = filepath.Base(filepath.Dir(file))
		}
	}
	return all
}

// gone reports whether an error means that the process has ended.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// nameOf reads a name of a struct ibv_device, "" if there is none.
func (t *target) nameOf(address uint64, offset int) string {
	name := make([]byte, deviceNameSize)
	if n, err := t.read(address+uint64(offset), name); err != nil || n < len(name) {
		return ""
	}
	text, _, ended := strings.Cut(string(name), "\x00")
	if !ended {
		return ""
	}
	return text
}

// pointer reads a pointer of a struct.
func pointer(memory []byte, offset int) uint64 { return binary.NativeEndian.Uint64(memory[offset:]) }

// code reports whether a struct has code wherever it has a function: memory may look like a struct by chance.
func (t *target) code(calls map[string]int, memory []byte) bool {
	for _, offset := range calls {
		address := pointer(memory, offset)
		if r, ok := t.region(address); address != 0 && (!ok || r.Inode == 0 || !r.Executable()) {
			return false
		}
	}
	return true
}

// dummy reports whether a function is the library's own, which refuses the call: verbs_set_ops (libibverbs/dummy_ops.c) begins with these.
func (t *target) dummy(address uint64) bool {
	r, ok := t.region(address)
	return ok && r.Inode != 0 && r.Executable() && strings.HasPrefix(filepath.Base(r.Path), "libibverbs.so")
}

package symbols

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kernel has the functions of the kernel and of its modules. Its methods may be called from several goroutines.
type Kernel struct {
	mu        sync.Mutex
	taken     *atomic.Int64 // where its bytes are counted; may be nil
	functions []function
	read      time.Time
	open      func() (io.ReadCloser, error)
}

type function struct {
	start        uint64
	name, module string
}

// OpenKernel reads /proc/kallsyms.
func OpenKernel() (*Kernel, error) {
	k := &Kernel{open: func() (io.ReadCloser, error) { return os.Open("/proc/kallsyms") }}
	return k, k.reload()
}

// ErrHidden means that the kernel does not show addresses to this process.
var ErrHidden = errors.New("/proc/kallsyms hides the addresses of the kernel's functions")

// CheckKernel returns the error of OpenKernel if the kernel's functions have no names here, but reads only the beginning.
func CheckKernel() error {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for range 1000 {
		if !lines.Scan() {
			break
		}
		if fn, ok := parseFunction(lines.Bytes()); ok && fn.start != 0 {
			return nil
		}
	}
	return hidden()
}

// hidden returns the cause on this machine.
func hidden() error {
	level, _ := os.ReadFile("/proc/sys/kernel/kptr_restrict")
	return hiddenBy(strings.TrimSpace(string(level)))
}

// hiddenBy returns the cause for a value of kernel.kptr_restrict, as in kallsyms_show_value() of kernel/ksyms_common.c.
func hiddenBy(restrict string) error {
	switch restrict {
	case "2":
		return fmt.Errorf("%w, because kernel.kptr_restrict is 2: sysctl kernel.kptr_restrict=1 shows them to root", ErrHidden)
	case "1":
		return fmt.Errorf("%w, because kernel.kptr_restrict is 1: run as root, or grant CAP_SYSLOG", ErrHidden)
	}
	return fmt.Errorf("%w: run as root, or grant CAP_SYSLOG", ErrHidden)
}

func (k *Kernel) reload() error {
	f, err := k.open()
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := readFunctions(f)
	if err != nil {
		return err
	}
	k.functions, k.read = all, time.Now()
	if k.taken != nil {
		k.taken.Store(k.bytes())
	}
	return nil
}

// bytes estimates its memory.
func (k *Kernel) bytes() int64 {
	all := 0
	for _, f := range k.functions {
		all += 48 + len(f.name)
	}
	return int64(all)
}

// maxFunctions is several times what there is: a kernel has 150,000 functions, and users may add BPF programs where these need no privileges.
const maxFunctions = 1 << 19

// readFunctions reads a file like kallsyms, and sorts the functions by address.
func readFunctions(r io.Reader) ([]function, error) {
	var all []function
	module := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(all) < maxFunctions {
		if f, ok := parseFunction(lines.Bytes()); ok && f.start != 0 {
			if f.module == module {
				f.module = module // the functions of a module share its name
			}
			module = f.module
			all = append(all, f)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("/proc/kallsyms: %w", err)
	}
	if len(all) == 0 {
		return nil, hidden()
	}
	slices.SortStableFunc(all, func(a, b function) int { return cmp.Compare(a.start, b.start) })
	return all, nil
}

// parseFunction reads a line like `ffffffff814154e0 t nvme_poll [nvme]`; ok is false if it is not code.
func parseFunction(line []byte) (f function, ok bool) {
	address, rest, _ := bytes.Cut(line, []byte(" "))
	kind, rest, _ := bytes.Cut(rest, []byte(" "))
	name, module, _ := bytes.Cut(rest, []byte("\t"))
	if len(kind) != 1 || !bytes.ContainsAny(kind, "tTwW") || len(name) == 0 {
		return f, false
	}
	start, err := strconv.ParseUint(string(address), 16, 64)
	if err != nil {
		return f, false
	}
	return function{start, string(name), strings.Trim(string(module), "[]")}, true
}

// reloadAfter is the age at which the table is read again for an address without a name: modules and BPF programs may be new.
const reloadAfter = 5 * time.Second

// Frames returns the frames of addresses.
func (k *Kernel) Frames(addresses []uint64) []Frame {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]Frame, len(addresses))
	for i, a := range addresses {
		f, ok := k.find(a)
		if !ok && time.Since(k.read) > reloadAfter {
			if k.reload() == nil {
				f, ok = k.find(a)
			}
			k.read = time.Now()
		}
		out[i] = Frame{Address: a}
		if ok {
			out[i] = Frame{Address: a, Function: readable(f.name), Offset: a - f.start, Module: f.module, InModule: true}
		}
	}
	return out
}

// find returns the function of an address. The size of the last function of the kernel, of a module, or of the BPF programs is unknown; it
// ends with its page at the latest.
func (k *Kernel) find(address uint64) (function, bool) {
	i := k.last(address)
	if i < 0 {
		return function{}, false
	}
	f := k.functions[i]
	next := k.after(i)
	if next < len(k.functions) && k.functions[next].module == f.module && f.module != "bpf" && !strings.HasPrefix(f.name, "_etext") {
		return f, true
	}
	const page = 4096
	return f, address < (f.start/page+1)*page
}

// last returns the first of the functions at the last address up to this one.
func (k *Kernel) last(address uint64) int {
	i, _ := slices.BinarySearchFunc(k.functions, address, func(f function, a uint64) int {
		if f.start <= a {
			return -1
		}
		return 1
	})
	for i--; i > 0 && k.functions[i-1].start == k.functions[i].start; i-- {
	}
	return i
}

// after returns the first function at a higher address than another one's.
func (k *Kernel) after(i int) int {
	j := i + 1
	for j < len(k.functions) && k.functions[j].start == k.functions[i].start {
		j++
	}
	return j
}

// Range returns the addresses of the first function with a name, or, if the name ends in *, of all with a number there; 0, 0 if there is
// none.
func (k *Kernel) Range(name string) (from, size uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	prefix, numbered := strings.CutSuffix(name, "*")
	var end uint64
	for i, f := range k.functions {
		if numbered {
			number, ok := strings.CutPrefix(f.name, prefix)
			if _, err := strconv.Atoi(number); !ok || err != nil {
				continue
			}
		} else if f.name != name {
			continue
		}
		if from == 0 {
			from = f.start
		}
		if next := k.after(i); next < len(k.functions) {
			end = k.functions[next].start
		}
		if !numbered {
			break
		}
	}
	return from, max(end, from) - from
}

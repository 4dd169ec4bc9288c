//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// readSymbols reads the wanted names from a kallsyms file.
func readSymbols(path string, wanted map[string]bool) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := make(map[string]bool)
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if name, _ := symbolOf(line); wanted[string(name)] {
			found[string(name)] = true
		}
	}
}

// FunctionsOf returns which of the wanted functions a module has; it does not look elsewhere.
func FunctionsOf(module string, wanted map[string]bool) (map[string]bool, error) {
	return functionsOf("/proc/kallsyms", module, wanted)
}

// functionsOf reads the kernel's symbols: a new module may have a function of the same name.
func functionsOf(path, module string, wanted map[string]bool) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, others := make(map[string]bool), make(map[string]bool)
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name, owner := symbolOf(line)
		switch {
		case !wanted[string(name)]:
		case string(owner) == module:
			found[string(name)] = true
		default:
			others[string(name)] = true
		}
	}
	for name := range others {
		delete(found, name)
	}
	return found, nil
}

// symbolOf reads a line of kallsyms, "ffffffff81000000 T name" or "… T name\t[module]".
func symbolOf(line []byte) (name, module []byte) {
	i := bytes.IndexByte(line, ' ')
	if i < 0 || len(line) <= i+3 {
		return nil, nil
	}
	name, module, _ = bytes.Cut(bytes.TrimSuffix(line[i+3:], []byte("\n")), []byte("\t"))
	return name, bytes.Trim(module, "[]")
}

// HidesAddresses reports whether /proc/kallsyms has zeros in place of the addresses: kernel.kptr_restrict is 2, or this process has no CAP_SYSLOG
// and needs it (kallsyms_show_value, kernel/ksyms_common.c). The first address may be 0 anyway, as the first variable of each CPU has it.
func HidesAddresses() bool {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return true
	}
	defer f.Close()
	some := bufio.NewScanner(io.LimitReader(f, 4096))
	for some.Scan() {
		if address, _, _ := strings.Cut(some.Text(), " "); strings.Trim(address, "0") != "" {
			return false
		}
	}
	return true
}

// Package proc reads what the kernel writes about a process into files below /proc: proc(5).
package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
)

// Mapping is a line of /proc/PID/maps: proc_pid_maps(5).
type Mapping struct {
	Start, End uint64
	// Perms has r, w, x, and p or s at the end, or - in their places.
	Perms string
	// Offset is where Start is in the file.
	Offset uint64
	// Major and Minor are the device of the file, and Inode is its number there, 0 of memory without a file.
	Major, Minor uint32
	Inode        uint64
	// Path is the file, a name like [heap], or "". A file that was removed has " (deleted)" at its end.
	Path string
}

// Executable reports whether it holds code.
func (m Mapping) Executable() bool { return m.Perms[2] == 'x' }

// Shared reports whether other processes see what this one writes.
func (m Mapping) Shared() bool { return m.Perms[3] == 's' }

// Mappings returns what a process maps, by address; nothing of a thread of the kernel.
func Mappings(pid int) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadMappings(f) // an error of reading names the file
}

// longestLine has a path in which each byte is written as four.
const longestLine = 1 << 16

// ReadMappings reads a file like /proc/PID/maps.
func ReadMappings(r io.Reader) ([]Mapping, error) {
	var all []Mapping
	for m, err := range EachMapping(r) {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// EachMapping yields the lines of a file like /proc/PID/maps: a process may have 65,530 mappings with paths of 4 KiB. After an error there are no
// more.
func EachMapping(r io.Reader) iter.Seq2[Mapping, error] {
	return func(yield func(Mapping, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, longestLine)
		for lines.Scan() {
			if m, err := parseMapping(lines.Text()); !yield(m, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Mapping{}, err)
		}
	}
}

// parseMapping reads a line like `7f1e2a000000-7f1e2a022000 r-xp 00026000 fe:01 1234     /usr/lib/libc.so.6`.
func parseMapping(line string) (m Mapping, err error) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 5 || len(fields[1]) != 4 {
		return m, fmt.Errorf("%q is not a mapping of a process", line)
	}
	number := func(text string, base, bits int) uint64 {
		n, wrong := strconv.ParseUint(text, base, bits)
		err = errors.Join(err, wrong)
		return n
	}
	start, end, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	m = Mapping{
		Start: number(start, 16, 64), End: number(end, 16, 64), Perms: fields[1], Offset: number(fields[2], 16, 64),
		Major: uint32(number(major, 16, 32)), Minor: uint32(number(minor, 16, 32)), Inode: number(fields[4], 10, 64),
	}
	if err != nil || m.End <= m.Start {
		return Mapping{}, fmt.Errorf("%q is not a mapping of a process", line)
	}
	if len(fields) == 6 {
		m.Path = strings.ReplaceAll(strings.TrimLeft(fields[5], " "), `\012`, "\n") // the kernel escapes nothing else
	}
	return m, nil
}

// Usage is a mapping in /proc/PID/smaps: proc_pid_smaps(5).
type Usage struct {
	Mapping
	// Anonymous is how many bytes of it are no pages of a file: memory of the process, and pages of a file that somebody changed in it.
	Anonymous uint64
}

// Usages returns what a process maps, by address. A kernel may lack the file (CONFIG_PROC_PAGE_MONITOR).
func Usages(pid int) ([]Usage, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadUsages(f)
}

// ReadUsages reads a file like /proc/PID/smaps: lines like `Anonymous:  8 kB` follow the line of a mapping.
func ReadUsages(r io.Reader) ([]Usage, error) {
	var all []Usage
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasSuffix(first, ":") {
			m, err := parseMapping(lines.Text())
			if err != nil {
				return nil, err
			}
			all = append(all, Usage{Mapping: m})
			continue
		}
		if first == "Anonymous:" && len(all) > 0 {
			kB, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 54)
			if err != nil {
				return nil, fmt.Errorf("%q is not a size", rest)
			}
			all[len(all)-1].Anonymous = kB << 10
		}
	}
	return all, lines.Err()
}

// Stat is what /proc/PID/stat has: proc_pid_stat(5).
type Stat struct {
	Name string
	// after are the fields after the name, from the third one on.
	after []string
}

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(string(text))
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return s, err
}

// parseStat splits the fields. The second one is the name in parentheses, which may hold anything.
func parseStat(text string) (Stat, error) {
	_, rest, opened := strings.Cut(text, "(")
	end := strings.LastIndexByte(rest, ')')
	if !opened || end < 0 {
		return Stat{}, fmt.Errorf("no name in %q", text)
	}
	return Stat{Name: rest[:end], after: strings.Fields(rest[end+1:])}, nil
}

// Fields of /proc/PID/stat with numbers.
const (
	Parent    = 4
	StartTime = 22 // in ticks since boot
	Processor = 39 // the CPU that it was last on
)

// Number returns a field behind the name, counted as in proc_pid_stat(5), where it is the second one.
func (s Stat) Number(field int) (uint64, error) {
	const first = 3
	if field-first >= len(s.after) {
		return 0, fmt.Errorf("%d fields after the name %q", len(s.after), s.Name)
	}
	return strconv.ParseUint(s.after[field-first], 10, 64)
}

// Status returns the lines of /proc/PID/status, split at spaces, by the name in front of the colon: proc_pid_status(5). It is nil if the process
// has ended.
func Status(pid int) map[string][]string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	lines := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		name, values, _ := strings.Cut(line, ":")
		lines[name] = strings.Fields(values)
	}
	return lines
}

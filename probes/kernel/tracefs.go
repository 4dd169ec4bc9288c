//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// tracefs returns the folder where tracefs is mounted, or "".
func tracefs() string {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return dir
		}
	}
	return ""
}

// ReadFormat makes a type from the format file of a tracepoint, like rdma_cma/cm_send_req: the event that the kernel formats for ftrace.
func ReadFormat(tracepoint string) (*btf.Struct, error) {
	return readFormat(tracefs(), tracepoint)
}

// readFormat does so in the folder where tracefs is mounted.
func readFormat(dir, tracepoint string) (*btf.Struct, error) {
	if dir == "" {
		return nil, errors.New("tracefs is not mounted or not readable (mount -t tracefs tracefs /sys/kernel/tracing)")
	}
	text, err := os.ReadFile(filepath.Join(dir, "events", tracepoint, "format"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, NoTracepoint(filepath.Base(tracepoint))
	}
	if errors.Is(err, unix.EPERM) { // to all, so it is no matter of who owns the file: LOCKDOWN_TRACEFS
		return nil, fmt.Errorf("tracefs: %w", Refused(err))
	}
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	record, err := parseFormat(string(text))
	if err != nil {
		return nil, fmt.Errorf("format of tracepoint %s: %w", tracepoint, err)
	}
	return record, nil
}

// NoTracepoint is the error that the kernel lacks a tracepoint, by its name.
type NoTracepoint string

func (name NoTracepoint) Error() string { return "this kernel has no tracepoint " + string(name) }

// formatField matches a line of a format file (trace_event_format, kernel/trace/trace_events.c):
//
//	field:unsigned char srcaddr[28]; offset:16; size:28; signed:0;
var formatField = regexp.MustCompile(`(?m)^\tfield:(.+);\toffset:(\d+);\tsize:(\d+);(?:\tsigned:([01]);)?`)

// identifier is what C allows as a member's name: types cannot have every name.
var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// maxFtraceEvent is more than the size of any ftrace event: PERF_MAX_TRACE_SIZE is 8 KiB.
const maxFtraceEvent = 1 << 16

// parseFormat makes a struct from a format file. Numbers are integers, anything else is bytes. A __data_loc is a number.
func parseFormat(format string) (*btf.Struct, error) {
	record := &btf.Struct{}
	for _, match := range formatField.FindAllStringSubmatch(format, -1) {
		declaration := match[1]
		isArray := strings.HasSuffix(declaration, "]")
		if isArray {
			declaration, _, _ = strings.Cut(declaration, "[")
		}
		name := declaration[strings.LastIndexAny(declaration, " *")+1:]
		offset, err := strconv.ParseUint(match[2], 10, 32)
		size, err2 := strconv.ParseUint(match[3], 10, 32)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if !identifier.MatchString(name) || offset+size > maxFtraceEvent {
			return nil, fmt.Errorf("field %q at %d of %d bytes", match[1], offset, size)
		}
		if size == 0 { // an array at the end
			continue
		}
		record.Members = append(record.Members, btf.Member{
			Name: name, Type: recordFieldType(uint32(size), isArray, match[4] == "1"), Offset: btf.Bits(offset * 8),
		})
		record.Size = max(record.Size, uint32(offset+size))
	}
	if len(record.Members) == 0 {
		return nil, errors.New("no fields")
	}
	slices.SortStableFunc(record.Members, func(a, b btf.Member) int { return int(a.Offset) - int(b.Offset) })
	return record, nil
}

func recordFieldType(size uint32, isArray, signed bool) btf.Type {
	if !isArray && (size == 1 || size == 2 || size == 4 || size == 8) {
		number := &btf.Int{Name: fmt.Sprintf("u%d", size*8), Size: size}
		if signed {
			number.Name, number.Encoding = fmt.Sprintf("s%d", size*8), btf.Signed
		}
		return number
	}
	octet := &btf.Int{Name: "u8", Size: 1}
	return &btf.Array{Index: &btf.Int{Name: "u32", Size: 4}, Type: octet, Nelems: size}
}

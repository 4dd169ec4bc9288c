//go:build linux

package probes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// This file is the variant of a tracepoint that reads the record which the kernel formats for ftrace. tracefs tells its layout, so it
// needs no BTF: it is there where the arguments of the tracepoint are structs that nobody describes.

const (
	// recordKind is the kind of such programs, and the name of the variant.
	recordKind = "tracepoint"
	// recordPrefix begins the name of the C struct that stands for the record of the hook with the rest of the name.
	recordPrefix = "tracefs_"
)

// recordVariant returns the variant of a hook that reads records, if its object has one.
func (h *Host) recordVariant(object string, hk hook, tracepoint string) []variant {
	name := recordKind + "_" + hk.name
	if h.catalog.program(object, name) == nil {
		return nil
	}
	target := modules[object].events + "/" + tracepoint
	v := variant{name: recordKind, programs: []program{{name: name, kind: recordKind, target: target}}, caps: perfCaps()}
	v.check = func() error {
		if err := h.checkCaps(v.caps); err != nil {
			return err
		}
		if _, err := readRecord(target); err != nil {
			return modules[object].explain(err)
		}
		return checkHelpers(h.catalog.program(object, name).Tags)
	}
	return []variant{v}
}

// checkHelpers asks the kernel for what the program of a record calls beyond what every kernel has, as a tag says: "calls:task_pt_regs".
func checkHelpers(tags []string) error {
	if tagged(tags, "calls:") == "" {
		return nil
	}
	if err := features.HaveProgramHelper(ebpf.TracePoint, asm.FnTaskPtRegs); err != nil {
		return fmt.Errorf("registers of a task: %w", err)
	}
	return nil
}

// nameOf returns the name that the tracepoint of a hook has in this kernel.
func (h *Host) nameOf(object string, hk hook) string {
	if hk.alias == "" {
		return hk.tracepoint
	}
	if there, err := h.hasTracepoint(object, hk.alias); err == nil && there {
		return hk.alias
	}
	return hk.tracepoint
}

// checkTypes says which types of its module an object reads and this kernel does not describe.
func (h *Host) checkTypes(object string) error {
	if missing := h.missingTypes(object, object); len(missing) > 0 {
		return fmt.Errorf("no types of %s (%s)", modules[object].name, strings.Join(missing, " "))
	}
	return nil
}

// recordType makes the type of the record that a view of an object stands for; btf.ErrNotFound if this host does not show it.
func (h *Host) recordType(object, view string) (btf.Type, error) {
	hooks := allHooks()
	i := slices.IndexFunc(hooks, func(hk hook) bool { return recordPrefix+hk.name == view })
	if i < 0 {
		return nil, btf.ErrNotFound
	}
	record, err := readRecord(modules[object].events + "/" + h.nameOf(object, hooks[i]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", btf.ErrNotFound, err)
	}
	record.Name = view
	return record, nil
}

// tracefs returns the folder where tracefs is mounted, or "".
func tracefs() string {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events"); err == nil {
			return dir
		}
	}
	return ""
}

// readRecord reads the format of a tracepoint, like rdma_cma/cm_send_req.
func readRecord(tracepoint string) (*btf.Struct, error) {
	dir := tracefs()
	if dir == "" {
		return nil, errors.New("tracefs is not mounted or not readable (mount -t tracefs tracefs /sys/kernel/tracing)")
	}
	text, err := os.ReadFile(filepath.Join(dir, "events", tracepoint, "format"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, noTracepoint(filepath.Base(tracepoint))
	}
	if err != nil {
		return nil, fmt.Errorf("tracefs: %w", err)
	}
	record, err := parseRecord(string(text))
	if err != nil {
		return nil, fmt.Errorf("format of tracepoint %s: %w", tracepoint, err)
	}
	return record, nil
}

// recordField matches a line of a format file (trace_event_format, kernel/trace/trace_events.c):
//
//	field:unsigned char srcaddr[28];	offset:16;	size:28;	signed:0;
var recordField = regexp.MustCompile(`(?m)^\tfield:(.+);\toffset:(\d+);\tsize:(\d+);(?:\tsigned:([01]);)?`)

// maxRecord is more than a record can be: PERF_MAX_TRACE_SIZE is 8 KiB.
const maxRecord = 1 << 16

// parseRecord makes a struct of a format file. Numbers are integers, anything else is bytes. A __data_loc is a number.
func parseRecord(format string) (*btf.Struct, error) {
	record := &btf.Struct{}
	for _, match := range recordField.FindAllStringSubmatch(format, -1) {
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
		if name == "" || offset+size > maxRecord {
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

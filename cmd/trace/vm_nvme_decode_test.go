//go:build vm

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The fields of a command in ftrace's text.

// kernelNames are the names of opcodes that the kernel writes in another way.
var kernelNames = map[string]string{
	"abort_cmd": "abort", "nvme_mi_send": "mi_send", "nvme_mi_recv": "mi_recv", "auth_receive": "auth_recv",
}

// addOpcode adds the opcode: by its name, or by its number if this kernel has no name for it.
func (f ftraced) addOpcode(want fields) {
	for _, prefix := range []string{"nvme_cmd_", "nvme_admin_", "nvme_fabrics_type_"} {
		name, ok := strings.CutPrefix(f.name, prefix)
		if !ok {
			continue
		}
		if ours, differs := kernelNames[name]; differs {
			name = ours
		}
		want["opcode"] = name
		if strings.Contains(prefix, "fabrics") {
			want["nsid"], want["fctype"], want["raw_opcode"] = nil, f.num["nsid"]&0xff, 0x7f
		}
		return
	}
	code, err := strconv.ParseUint(f.name, 0, 8)
	if err != nil {
		panic(fmt.Sprintf("no idea what command that is: %s", f.line))
	}
	want["raw_opcode"] = code
}

// shown are the bits of a dword that the kernel shows.
type shown struct{ mask, value uint32 }

// dwords are the command's dwords from 10 on, as far as the kernel shows them, put together again from its explanation.
func (f ftraced) dwords() map[int]shown {
	found := map[int]shown{}
	add := func(dword, shift, bits int, name string) {
		mask := uint32(uint64(1)<<bits-1) << shift
		s := found[dword]
		found[dword] = shown{s.mask | mask, s.value | uint32(f.args[name])<<shift&mask}
	}
	long := func(dword int, name string) {
		found[dword] = shown{^uint32(0), uint32(f.args[name])}
		found[dword+1] = shown{^uint32(0), uint32(f.args[name] >> 32)}
	}
	for i := 0; i+4 <= len(f.bytes); i += 4 {
		b := f.bytes[i:]
		found[10+i/4] = shown{^uint32(0), uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24}
	}
	if f.bytes != nil {
		return found
	}
	if _, ok := f.args["len"]; ok { // read, write, write_zeroes, zone_append
		long(10, "slba")
		add(12, 0, 16, "len")
		add(12, 16, 16, "ctrl")
		add(13, 0, 32, "dsmgmt")
		add(14, 0, 32, "reftag")
		return found
	}
	switch f.name {
	case "nvme_cmd_dsm":
		add(10, 0, 32, "nr")
		add(11, 0, 32, "attributes")
	case "nvme_cmd_zone_mgmt_send":
		long(10, "slba")
		add(13, 0, 8, "zsa")
		add(13, 8, 8, "all")
	case "nvme_cmd_zone_mgmt_recv":
		long(10, "slba")
		add(12, 0, 32, "numd")
		add(13, 0, 8, "zra")
		add(13, 8, 8, "zrasf")
		add(13, 16, 8, "pr")
	case "nvme_cmd_resv_register":
		add(10, 0, 3, "rrega")
		add(10, 3, 1, "iekey")
		add(10, 30, 2, "ptpl")
	case "nvme_cmd_resv_acquire":
		add(10, 0, 3, "racqa")
		add(10, 3, 1, "iekey")
		add(10, 8, 8, "rtype")
	case "nvme_cmd_resv_release":
		add(10, 0, 3, "rrela")
		add(10, 3, 1, "iekey")
		add(10, 8, 8, "rtype")
	case "nvme_cmd_resv_report":
		add(10, 0, 32, "numd")
		add(11, 0, 1, "eds")
	case "nvme_admin_delete_sq":
		add(10, 0, 16, "sqid")
	case "nvme_admin_create_sq":
		add(10, 0, 16, "sqid")
		add(10, 16, 16, "qsize")
		add(11, 0, 16, "sq_flags")
		add(11, 16, 16, "cqid")
	case "nvme_admin_delete_cq":
		add(10, 0, 16, "cqid")
	case "nvme_admin_create_cq":
		add(10, 0, 16, "cqid")
		add(10, 16, 16, "qsize")
		add(11, 0, 16, "cq_flags")
		add(11, 16, 16, "irq_vector")
	case "nvme_admin_identify":
		add(10, 0, 8, "cns")
		add(10, 16, 16, "ctrlid")
	case "nvme_admin_set_features":
		add(10, 0, 8, "fid")
		add(11, 0, 32, "cdw11")
	case "nvme_admin_get_features":
		add(10, 0, 8, "fid")
		add(10, 8, 3, "sel")
		add(11, 0, 32, "cdw11")
	case "nvme_admin_get_lba_status":
		long(10, "slba")
		add(12, 0, 32, "mndw")
		add(13, 0, 16, "rl")
		add(13, 24, 8, "atype")
	case "nvme_admin_format_nvm":
		add(10, 0, 4, "lbaf")
		add(10, 4, 1, "mset")
		add(10, 5, 3, "pi")
		add(10, 8, 1, "pil")
		add(10, 9, 3, "ses")
	case "nvme_fabrics_type_property_set":
		add(10, 0, 8, "attrib")
		add(11, 0, 32, "ofst")
		long(12, "value")
	case "nvme_fabrics_type_property_get":
		add(10, 0, 8, "attrib")
		add(11, 0, 32, "ofst")
	case "nvme_fabrics_type_connect":
		add(10, 0, 16, "recfmt")
		add(10, 16, 16, "qid")
		add(11, 0, 16, "sqsize")
		add(11, 16, 8, "cattr")
		add(12, 0, 32, "kato")
	default:
		panic(fmt.Sprintf("no idea how the kernel explains %s", f.line))
	}
	return found
}

// checkDwords checks the bits that the kernel shows.
func (f ftraced) checkDwords(t *testing.T, e jsonEvent) {
	t.Helper()
	for i, want := range f.dwords() {
		if got := uint32(e.num(t, fmt.Sprint("cdw", i))); got&want.mask != want.value {
			t.Fatalf("cdw%d is %#x, want %#x in the bits %#x, in %v\nftrace: %s", i, got, want.value, want.mask, e, f.line)
		}
	}
}

var (
	zoneSendActions = map[string]string{"close zone": "close", "finish zone": "finish", "open zone": "open", "reset zone": "reset",
		"offline zone": "offline", "set zone descriptor extension": "set_desc_ext"}
	zoneStates = map[string]string{"list all zones": "any", "list the zones in the ZSE: Empty state": "empty",
		"list the zones in the ZSIO: Implicitly Opened state": "implicitly_open",
		"list the zones in the ZSEO: Explicitly Opened state": "explicitly_open",
		"list the zones in the ZSC: Closed state":             "closed", "list the zones in the ZSF: Full state": "full",
		"list the zones in the ZSRO: Read Only state": "read_only", "list the zones in the ZSO: Offline state": "offline"}
	ftraceAction = regexp.MustCompile(`zsa=\d+:(.*), all=`)
	ftraceState  = regexp.MustCompile(`zrasf=\d+:(.*), pr=`)
	// What the specification calls the bits and the offsets that ftrace shows as numbers.
	dsmAttributes = []string{"unset", "idr", "idw", "idw_idr", "ad", "ad_idr", "ad_idw", "ad_idw_idr"}
	prchkNames    = []string{"unchecked", "ref", "app", "app_ref", "guard", "guard_ref", "guard_app", "guard_app_ref"}
	properties    = map[uint32]string{0x0: "cap", 0x8: "vs", 0x14: "cc", 0x1c: "csts", 0x20: "nssr", 0x68: "crto"}
)

// nameOr returns the name that a text of ftrace stands for.
func nameOr(names map[string]string, re *regexp.Regexp, line string) any {
	m := re.FindStringSubmatch(line)
	if m == nil || names[m[1]] == "" {
		panic("no name of ours for what is in " + line)
	}
	return names[m[1]]
}

// addDecoded adds the fields that are parts of dwords. Those that the command does not have are absent.
func (f ftraced) addDecoded(want fields) {
	for _, name := range []string{"slba", "nlb", "fua", "lr", "pract", "prchk", "deac", "ranges", "attributes", "zone_action", "zone_state",
		"zone_all", "zone_partial", "property", "for_qid", "for_cid"} {
		want[name] = nil
	}
	want["fuse"], want["psdt"] = []string{"normal", "first", "second", "3"}[f.num["flags"]&3], []string{"prp", "sgl", "sgl_meta", "3"}[f.num["flags"]>>6]
	dwords := f.dwords()
	slba := func() { want["slba"] = uint64(dwords[11].value)<<32 | uint64(dwords[10].value) }
	flags := func() {
		d := dwords[12].value
		want["fua"], want["lr"], want["pract"] = d>>30&1 != 0, d>>31 != 0, d>>29&1 != 0
		want["prchk"] = prchkNames[d>>26&7]
	}
	opcode := want["opcode"]
	if opcode == nil && f.num["qid"] != 0 {
		opcode = specified[want["raw_opcode"]]
	}
	switch opcode {
	case "read", "write", "compare", "write_zeroes", "verify", "zone_append", "write_uncor":
		slba()
		want["nlb"] = dwords[12].value&0xffff + 1
		if opcode != "write_uncor" {
			flags()
		}
		if opcode == "write_zeroes" {
			want["deac"] = dwords[12].value>>25&1 != 0
		}
	case "dsm":
		want["ranges"], want["attributes"] = dwords[10].value&0xff+1, dsmAttributes[dwords[11].value&7]
	case "zone_mgmt_send":
		slba()
		want["zone_action"], want["zone_all"] = nameOr(zoneSendActions, ftraceAction, f.zoneText()), dwords[13].value>>8&1 != 0
	case "zone_mgmt_recv":
		slba()
		want["zone_action"] = []string{"report", "extended_report"}[dwords[13].value&0xff]
		want["zone_state"], want["zone_partial"] = nameOr(zoneStates, ftraceState, f.zoneText()), dwords[13].value>>16&1 != 0
	case "get_lba_status":
		slba()
	case "delete_sq", "create_sq", "delete_cq", "create_cq":
		want["for_qid"] = dwords[10].value & 0xffff
	case "abort":
		want["for_qid"], want["for_cid"] = dwords[10].value&0xffff, dwords[10].value>>16
	case "connect":
		want["for_qid"] = dwords[10].value >> 16
	case "property_get", "property_set":
		want["property"] = properties[dwords[11].value]
		if want["property"] == "" {
			want["property"] = dwords[11].value
		}
	case "copy":
		slba()
		flags()
		want["ranges"] = dwords[12].value&0xff + 1
	}
}

// specified are opcodes of the I/O queues that this kernel may have no name for, while we have fields for them.
var specified = map[any]string{
	uint64(0x0c): "verify", uint64(0x19): "copy", uint64(0x79): "zone_mgmt_send", uint64(0x7a): "zone_mgmt_recv", uint64(0x7d): "zone_append",
}

// zoneText is how newer kernels explain the commands for zones; older ones show numbers, or their dwords.
func (f ftraced) zoneText() string {
	if ftraceAction.MatchString(f.line) || ftraceState.MatchString(f.line) {
		return f.line
	}
	d := f.dwords()[13].value
	name := func(names map[string]string, ours string) string {
		for text, name := range names {
			if name == ours {
				return text
			}
		}
		return "?"
	}
	sends := map[uint32]string{1: "close", 2: "finish", 3: "open", 4: "reset", 5: "offline", 0x10: "set_desc_ext"}
	states := []string{"any", "empty", "implicitly_open", "explicitly_open", "closed", "full", "read_only", "offline"}
	return fmt.Sprintf("zsa=0:%s, all= zrasf=0:%s, pr=", name(zoneSendActions, sends[d&0xff]), name(zoneStates, states[d>>8&7]))
}

// retried reports whether a completion is followed by another attempt of the same command, among the lines after it.
func (f ftraced) retried(later []ftraced) bool {
	if f.num["status"] == 0 {
		return false
	}
	for _, next := range later {
		if next.probe == f.probe && next.slot() == f.slot() {
			return next.num["retries"] == f.num["retries"]+1
		}
	}
	return false
}

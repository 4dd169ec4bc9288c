package kernel

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

const formatFile = `name: cm_id_attach
ID: 1234
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:u32 cm_id;	offset:8;	size:4;	signed:0;
	field:unsigned char srcaddr[sizeof(struct sockaddr_in6)];	offset:12;	size:28;	signed:0;
	field:const void *pointer;	offset:40;	size:8;	signed:0;
	field:__data_loc char[] devname;	offset:68;	size:4;	signed:1;
	field:char tail[];	offset:72;	size:0;	signed:0;

print fmt: "cm.id=%u", REC->cm_id
`

func TestParseFormat(t *testing.T) {
	record, err := parseFormat(formatFile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct{ offset, size int }{
		"common_type": {0, 2}, "common_pid": {4, 4}, "cm_id": {8, 4}, "srcaddr": {12, 28}, "pointer": {40, 8}, "devname": {68, 4},
	}
	if len(record.Members) != len(want) || record.Size != 72 {
		t.Errorf("%d members in %d bytes: %v", len(record.Members), record.Size, record.Members)
	}
	for _, m := range record.Members {
		size, err := btf.Sizeof(m.Type)
		if w := want[m.Name]; err != nil || int(m.Offset.Bytes()) != w.offset || size != w.size {
			t.Errorf("%s is at %d of %d bytes, want %v", m.Name, m.Offset.Bytes(), size, w)
		}
	}
	for _, bad := range []string{"", "format:\n", "\tfield:u32 x;\toffset:99999;\tsize:4;\n", "\tfield:u32 x\x00;\toffset:0;\tsize:4;\n", "\tfield:u32 x;\toffset:99999999999999999999;\tsize:4;\n"} {
		if _, err := parseFormat(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(formatFile)
	f.Add(strings.ReplaceAll(formatFile, "offset:12", "offset:65535"))
	f.Fuzz(func(t *testing.T, text string) {
		record, err := parseFormat(text)
		if err != nil {
			return
		}
		for _, m := range record.Members {
			if size, err := btf.Sizeof(m.Type); err != nil || int(m.Offset.Bytes())+size > int(record.Size) {
				t.Errorf("%s reaches beyond the record: %v", m.Name, err)
			}
		}
		b, err := btf.NewBuilder([]btf.Type{record}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Spec(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

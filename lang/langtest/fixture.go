// Package langtest has what the tests of the language share: handmade probes, fields and events, and cases kept in files.
package langtest

import (
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"trace/probes/event"
)

// Table is a handmade event: the values of the fields that are present.
type Table map[string]any

// Get returns the value of a field, or false if the table has none.
func (t Table) Get(f *event.Field) (any, bool) {
	v, ok := t[f.Name]
	return v, ok
}

// Field makes a field that is always present.
func Field(name string, t event.Type) *event.Field { return &event.Field{Name: name, Type: t} }

// Optional makes a field that may be absent.
func Optional(name string, t event.Type) *event.Field {
	return &event.Field{Name: name, Type: t, Optional: true}
}

// Probe makes a probe with the common fields and these.
func Probe(group, name string, fields ...*event.Field) *event.Probe {
	common := []*event.Field{
		Field("nsecs", Ns), Field("pid", U32), Field("tid", U32), Field("uid", U32),
		Field("comm", Str16), Field("cpu", U32), Field("cgroup", event.Type{Kind: event.Uint, Size: 8, Unit: event.Cgroup}),
	}
	for _, f := range common {
		f.Common = true
		if !slices.Contains([]string{"nsecs", "pid", "comm"}, f.Name) {
			f.Line.Shown = event.Verbose
		}
	}
	return &event.Probe{
		Group: group, Name: name, Fields: slices.Concat(common, fields), Workload: event.WorkloadOf(common[len(common)-1]),
		Apart: group == "mlx5", Sampled: group == "profile", Echoes: group == "syscall", Selector: map[string]string{"syscall": "nr"}[group],
	}
}

func enum(name string, names ...string) *event.Enum {
	e := &event.Enum{Name: name, Names: names}
	for i := range names {
		e.Values = append(e.Values, int64(i))
	}
	return e
}

var (
	U8      = event.Type{Kind: event.Uint, Size: 1}
	U32     = event.Type{Kind: event.Uint, Size: 4}
	U64     = event.Type{Kind: event.Uint, Size: 8}
	S8      = event.Type{Kind: event.Int, Size: 1}
	S64     = event.Type{Kind: event.Int, Size: 8}
	Ns      = event.Type{Kind: event.Uint, Size: 8, Unit: event.Nanoseconds}
	Size    = event.Type{Kind: event.Uint, Size: 4, Unit: event.Bytes}
	Hex     = event.Type{Kind: event.Uint, Size: 4, Unit: event.Hex}
	Errno   = event.Type{Kind: event.Int, Size: 4, Unit: event.Errno}
	Str16   = event.Type{Kind: event.String, Size: 16}
	Flag    = event.Type{Kind: event.Bool, Size: 1}
	Gid     = event.Type{Kind: event.GID, Size: 16}
	Opcode  = event.Type{Kind: event.Uint, Size: 2, Enum: enum("nvme_opcode", "flush", "write", "read", "compare")}
	Classed = event.Type{Kind: event.Uint, Size: 2, Enum: &event.Enum{Name: "classed", Classes: []string{"io", "admin", "-"}}}
	QpState = event.Type{Kind: event.Int, Size: 4, Enum: enum("qp_state", "RESET", "INIT", "RTR", "RTS", "ERR")}
	mode    = event.Type{Kind: event.Uint, Size: 4, Enum: enum("odd_mode", "off", "size")}
	Access  = event.Type{Kind: event.Uint, Size: 4, Enum: &event.Enum{Name: "access", Names: []string{"REMOTE_WRITE", "REMOTE_READ"}, Values: []int64{2, 4}, Flags: true}}
	Catalog = []*event.Probe{
		Probe("ib", "destroy_qp", Field("qp.num", U32), Field("ret", Errno)),
		Probe("ib", "modify_qp", Field("qp.num", U32), Optional("qp.state", QpState), Optional("qp.old_state", QpState),
			Optional("dgid", Gid), Field("sgid", Gid), Field("access", Access), Field("ret", Errno)),
		Probe("mlx5", "cmd", Field("syndrome", Hex), Optional("latency", Ns), Field("ret", Errno)),
		Probe("nvme", "complete_rq", Field("ctrl", Str16), Field("opcode", Opcode), Field("size", Size), Optional("latency", Ns), Field("write", Flag)),
		Probe("nvme", "setup_rq", Field("ctrl", Str16), Field("opcode", Opcode), Field("size", Size), Field("flags", Hex)),
		Probe("odd", "words", Field("mode", mode), Field("size", U64)),
		Probe("syscall", "enter", Field("nr", event.Type{Kind: event.Uint, Size: 4, Enum: enum("syscall_nr", "read", "write")})),
		Probe("syscall", "exit", Field("nr", U32), Field("ret", Errno), Optional("latency", Ns)),
		Probe("unit", "numbers", Field("u8", U8), Field("u64", U64), Field("s8", S8), Field("s64", S64),
			Optional("ou64", U64), Optional("os64", S64), Field("b", Flag), Optional("ob", Flag), Optional("os", Str16)),
	}
)

// Fixture returns the probe of [Catalog] with this name, like nvme:complete_rq.
func Fixture(name string) *event.Probe {
	i := slices.IndexFunc(Catalog, func(p *event.Probe) bool { return p.String() == name })
	return Catalog[i]
}

// Addresses maps the text of addresses to their 16 bytes.
var Addresses = map[string]string{
	"fe80::1":         "\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
	"::ffff:10.9.0.1": "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x09\x00\x01",
}

// Cases reads programs, and the result expected of each, from a file.
func Cases(t testing.TB, path string) iter.Seq2[string, string] {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(src, want string) bool) {
		for test := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n====\n") {
			src, want, _ := strings.Cut(test, "\n----\n")
			if !yield(src, want) {
				return
			}
		}
	}
}

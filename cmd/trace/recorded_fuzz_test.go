//go:build !vm

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"trace/lang/output"
	"trace/lang/run/console"
	"trace/probes/recording"
)

// crafted is a recording with a header and a block of events as anybody may write them, and right checksums. See probes/recording.
func crafted(header, records []byte, count uint32) []byte {
	le, table := binary.LittleEndian, crc32.MakeTable(crc32.Castagnoli)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	defer encoder.Close()
	sum := crc32.Checksum(header, table)
	out := []byte("trace recording\n")
	for _, v := range []uint32{recording.Version, uint32(len(header)), sum} {
		out = le.AppendUint32(out, v)
	}
	out = append(out, header...)
	block := func(number, kind, count uint32, raw []byte) {
		var stored, head []byte
		if len(raw) > 0 {
			stored = encoder.EncodeAll(raw, nil)
		}
		for _, v := range []uint32{kind, uint32(len(raw)), uint32(len(stored)), count, 1, 0, 2, 0, number} {
			head = le.AppendUint32(head, v)
		}
		headSum := crc32.Update(sum, table, head)
		head = le.AppendUint32(le.AppendUint32(head, headSum), crc32.Update(headSum, table, stored))
		out = append(append(out, head...), stored...)
	}
	block(0, 1, count, records)
	block(1, 3, 0, nil)
	return out
}

// headerOf is the header of a recording.
func headerOf(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data[28 : 28+binary.LittleEndian.Uint32(data[20:])]
}

// FuzzReplay prints, in each format, what a file holds that anybody may have made: nothing of it panics, or reaches a terminal that obeys.
func FuzzReplay(f *testing.F) {
	f.Add(headerOf(f, "../../scripts/testdata/rdma_flows.rec"), make([]byte, 600), uint32(1))
	f.Add([]byte(`{"host":"h\u001b[2J","boot":"2026-01-01T00:00:00Z","records":[{"group":"a","name":"b","size":48,"fields":[
		{"name":"nsecs","kind":"uint","size":8,"common":true,"at":8},{"name":"comm","kind":"string","size":16,"common":true,"at":16},
		{"name":"x","kind":"int","size":4,"unit":"errno","at":32},{"name":"e","kind":"uint","size":1,"enum":"e","at":36}]}],"enums":{"e":{"names":["A"],"values":[0]}}}`),
		append(make([]byte, 16), "c\x1b[31m\x9b\xff\x00 and 20 bytes more"...)[:48], uint32(1))
	f.Fuzz(func(t *testing.T, header, records []byte, count uint32) {
		if len(header) > 1<<20 || len(records) > 1<<20 || len(records) == 0 {
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, crafted(header, records, count), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []output.Format{output.Text, output.JSON, output.CSV, output.Perfetto} {
			for _, program := range []string{`*:*`, `*:* { printf("%s %t %d\n", comm, cgroup, pid); @[host, comm, pid, nsecs] = count() }`} {
				var out, errs bytes.Buffer
				o := options{recordings: []string{path}, format: formatFlag{format}}
				s := streams{out: &out, err: &errs}
				exitStatus(s, runReplay(t.Context(), s, o, programText{name: "p", text: program}))
				for _, text := range []string{out.String(), errs.String()} {
					if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || 0x7f <= r && r < 0xa0) }); i >= 0 {
						t.Fatalf("%s, %s: a control character in %q", format, program, text[max(0, i-50):min(len(text), i+50)])
					}
				}
			}
		}
		var out bytes.Buffer
		if err := console.ShowInfos(&out, []string{path}); err == nil && strings.Contains(out.String(), "\x1b") {
			t.Fatalf("trace info: %q", &out)
		}
	})
}

// What is damaged is an error, and with --strict what lost events are.
func TestStrictOnDamage(t *testing.T) {
	data, err := os.ReadFile(recordReads(t, 100))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "joined")
	if err := os.WriteFile(path, append(bytes.Clone(data), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{false, true} {
		var out, errs bytes.Buffer
		s := streams{out: &out, err: &errs}
		err := runReplay(t.Context(), s, options{recordings: []string{path}, format: formatFlag{output.Text}, strict: strict}, programText{name: "p", text: "nvme:complete_rq { @ = count() }"})
		status := exitStatus(s, err)
		want := map[bool]int{false: exitFailed, true: exitLost}[strict]
		if status != want || out.String() != "@: 100\n" || strings.Count(errs.String(), "read both with -r FILE,FILE") != 1 || errors.Is(err, errLost) != strict {
			t.Errorf("strict %v: status %d, %q, %q", strict, status, &out, &errs)
		}
	}
}

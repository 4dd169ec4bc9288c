package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// parts are the header of a file, with what precedes it, and its blocks.
func parts(t testing.TB, data []byte) (header []byte, blocks [][]byte) {
	t.Helper()
	s, err := decodeStart(data)
	if err != nil {
		t.Fatal(err)
	}
	n := headerLength + int(s.length)
	header, data = data[:n:n], data[n:]
	for len(data) > 0 {
		n := blockHeader + int(binary.LittleEndian.Uint32(data[8:]))
		blocks, data = append(blocks, data[:n:n]), data[n:]
	}
	return header, blocks
}

// asVersion1 makes a file of version 1 of one of now.
func asVersion1(header []byte, blocks [][]byte) ([]byte, [][]byte) {
	header = bytes.Clone(header)
	binary.LittleEndian.PutUint32(header[len(magic):], 1)
	var old [][]byte
	for _, b := range blocks {
		head := bytes.Clone(b[:blockFields1])
		head = binary.LittleEndian.AppendUint32(head, blockSum1(head, b[blockHeader:]))
		old = append(old, append(head, b[blockHeader:]...))
	}
	return header, old
}

// flushed is a file with five blocks of a hundred events, then losses and the end.
func flushed(t testing.TB) (file []byte, want []string) {
	t.Helper()
	layouts := smallLayouts(t)
	path := filepath.Join(t.TempDir(), "f")
	w, err := Create(path, Options{}, header, layouts, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := events(t, layouts, 10_000, 500)
	for i := 0; i < len(all); i += 100 {
		appendAll(t, w, all[i:i+100])
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(1<<40, nil); err != nil {
		t.Fatal(err)
	}
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return file, said(all)
}

// A file whose blocks are not those that were written, each once and in their order, is damaged; up to there it is whole.
func TestBlocksOfAFile(t *testing.T) {
	file, want := flushed(t)
	other, _ := flushed(t)
	begin, blocks := parts(t, file)
	otherBegin, otherBlocks := parts(t, bytes.Replace(other, []byte(`"host":"a"`), []byte(`"host":"b"`), 1))
	binary.LittleEndian.PutUint32(otherBegin[headerLength-4:], headerSum(otherBegin[headerLength:]))
	for i := range otherBlocks { // blocks of another file, with their own checksums
		head := bytes.Clone(otherBlocks[i][:blockFields])
		sum := crc32.Update(headerSum(otherBegin[headerLength:]), castagnoli, head)
		head = binary.LittleEndian.AppendUint32(head, sum)
		head = binary.LittleEndian.AppendUint32(head, crc32.Update(sum, castagnoli, otherBlocks[i][blockHeader:]))
		otherBlocks[i] = append(head, otherBlocks[i][blockHeader:]...)
	}
	oldBegin, old := asVersion1(begin, blocks)
	swapped := func(blocks [][]byte) [][]byte {
		blocks = slices.Clone(blocks)
		blocks[1], blocks[2] = blocks[2], blocks[1]
		return blocks
	}
	longer := func(begin []byte, blocks [][]byte) []byte {
		data := bytes.Join(append([][]byte{begin}, blocks...), nil)
		data[len(begin)+len(blocks[0])+len(blocks[1])+10] ^= 2 // stored of the third block, 128 KiB more
		return data
	}
	join := func(begin []byte, blocks ...[]byte) []byte {
		return append(bytes.Clone(begin), bytes.Join(blocks, nil)...)
	}
	for _, test := range []struct {
		name   string
		data   []byte
		events int
		reason string // "" is none
	}{
		{"whole", file, 500, ""},
		{"missing", join(begin, slices.Delete(slices.Clone(blocks), 2, 3)...), 200, "block 3 where block 2 should be"},
		{"doubled", join(begin, slices.Insert(slices.Clone(blocks), 2, blocks[1])...), 200, "block 1 where block 2 should be"},
		{"swapped", join(begin, swapped(blocks)...), 100, "block 2 where block 1 should be"},
		{"of another file", join(begin, blocks[0], blocks[1], otherBlocks[2], blocks[3]), 200, "of another recording"},
		{"length", longer(begin, blocks), 200, "the header of a block is damaged"},
		{"payload", slices.Concat(begin, blocks[0], blocks[1], flipped(blocks[2]), blocks[3]), 200, "the checksum of a block is wrong"},
		{"two files", append(bytes.Clone(file), file...), 500, "another recording follows: keep them in separate files, and read both with -r FILE,FILE"},
		{"end twice", join(begin, append(slices.Clone(blocks), blocks[len(blocks)-1])...), 500, "something follows the end"},
		{"a byte more", append(bytes.Clone(file), 0), 500, "something follows the end"},

		{"old, whole", join(oldBegin, old...), 500, ""},
		{"old, doubled", join(oldBegin, slices.Insert(slices.Clone(old), 2, old[1])...), 200, "a block is there twice"},
		{"old, doubled later", join(oldBegin, slices.Insert(slices.Clone(old), 4, old[1])...), 400, "a block is there twice"},
		{"old, swapped", join(oldBegin, swapped(old)...), 200, "blocks are in another order than they were written"},
		{"old, length", longer(oldBegin, old), 200, "the length of a block is damaged"},
		{"old, two files", join(oldBegin, append(slices.Clone(old), file)...), 500, "another recording follows"},
	} {
		got, _, err := readBytes(test.data)
		var damaged *CorruptError
		switch {
		case test.reason == "" && err == io.EOF:
		case test.reason == "" || !errors.As(err, &damaged) || !strings.Contains(err.Error(), test.reason):
			t.Errorf("%s: %v, want %q", test.name, err, test.reason)
		}
		// Of an old file two blocks are known to be in the wrong order only at the second.
		if len(got) != test.events || test.name != "old, swapped" && !slices.Equal(got, want[:min(len(got), len(want))]) {
			t.Errorf("%s: %d events, want the first %d", test.name, len(got), test.events)
		}
	}
}

// One host before and after a reboot is two machines to the clock, and so are two machines of one name.
func TestBoots(t *testing.T) {
	layouts := layoutsOf(t, "syscall:enter")
	const hour = uint64(3600e9)
	begin := func(id string, boot time.Time, started uint64) string {
		h := header
		h.BootID, h.Boot, h.Started = id, boot, started
		return record(t, "f"+id, h, layouts, few(events(t, layouts, started, 10)))
	}
	monday := time.Unix(1_700_000_000, 0).UTC()
	tuesday := monday.Add(24 * time.Hour)
	for _, test := range []struct {
		name  string
		files []string
		boot  time.Time
		times [2]uint64 // of the first event of each file, in the order in which they come
		boots int
	}{
		{"after a reboot", []string{begin("m", monday, hour), begin("t", tuesday, hour)}, monday, [2]uint64{hour, 25 * hour}, 2},
		{"after a reboot, the later one first", []string{begin("t", tuesday, hour), begin("m", monday, hour)}, monday, [2]uint64{hour, 25 * hour}, 2},
		{"old files, after a reboot", []string{begin("", monday, hour), begin("", tuesday, hour)}, monday, [2]uint64{hour, 25 * hour}, 2},
		{"one boot, another estimate", []string{begin("m", monday, hour), begin("m", tuesday, 2*hour)}, monday, [2]uint64{hour, 2 * hour}, 1},
		{"old files of one boot, another estimate", []string{begin("", monday, hour), begin("", monday.Add(time.Minute), 2*hour)}, monday, [2]uint64{hour, 2 * hour}, 1},
		{"two machines of one name", []string{begin("x", monday, hour), begin("y", monday, 2*hour)}, monday, [2]uint64{hour, 2 * hour}, 2},
	} {
		r, err := Open(test.files...)
		if err != nil {
			t.Fatal(err)
		}
		if !r.WallClock().Time(0).Equal(test.boot) || r.Started() != hour {
			t.Errorf("%s: booted %v, started %d", test.name, r.WallClock().Time(0), r.Started())
		}
		var times []uint64
		// Of the ten, none and the five with a path are the same on all boots; the others are different ones.
		cgroups := map[uint64]bool{}
		var item Item
		for item, err = r.Next(); err == nil; item, err = r.Next() {
			e := item.Event
			times = append(times, item.Time)
			id, _ := e.Get(e.Probe.Field("cgroup"))
			cgroups[id.(uint64)] = true
			if host, ok := e.Get(e.Probe.Field("host")); !ok || host != "a" {
				t.Fatalf("%s: host %v", test.name, host)
			}
		}
		if err != io.EOF || len(times) != 20 || times[0] != test.times[0] || times[10] != test.times[1] || len(cgroups) != 6+4*test.boots {
			t.Errorf("%s: %v, times %v, %d boots", test.name, err, times, len(cgroups))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// packer packs blocks; to make one takes longer than to read a file.
var packer = sync.OnceValue(func() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return encoder
})

// made is a file with that header and a block of events, whose checksums are right.
func made(h []byte, kind blockKind, count uint32, payload []byte) []byte {
	return madeOf(h, block{kind: kind, raw: uint32(len(payload)), count: count}, packer().EncodeAll(payload, nil))
}

// madeOf is a file with that header and block, whose checksums are right. stored is its payload, compressed or not.
func madeOf(h []byte, b block, stored []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(magic), Version)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(h)))
	out = binary.LittleEndian.AppendUint32(out, headerSum(h))
	s := sequence{sum: headerSum(h)}
	b.stored = uint32(len(stored))
	out = append(out, h...)
	out = append(append(out, s.encode(b, stored)...), stored...)
	return append(out, s.encode(block{kind: endBlock, first: 1, last: 1}, nil)...)
}

// Headers that no writer makes are refused, with right checksums as well, at once and without much memory.
func TestHostileHeaders(t *testing.T) {
	const nsecs = `{"name":"nsecs","kind":"uint","size":8,"unit":"ns","common":true,"at":8}`
	event := func(fields ...string) string {
		return `{"host":"h","records":[{"group":"a","name":"b","size":64,"fields":[` + strings.Join(append([]string{nsecs}, fields...), ",") + `]}],"enums":{"e":{"names":["A"],"values":[0]}}}`
	}
	for _, test := range []struct{ header, want string }{
		{event(), ""},
		{event(`{"name":"x","kind":"uint","size":4,"enum":"e","at":16}`), ""},
		{event(`{"name":"pid","kind":"string","size":4,"at":16}`), "pid is not of its type"},
		{event(`{"name":"comm","kind":"uint","size":4,"at":16}`), "comm is not of its type"},
		{event(`{"name":"comm","kind":"bool","size":1,"at":16}`), "comm is not of its type"},
		{event(`{"name":"tid","kind":"gid","size":16,"at":16}`), "tid is not of its type"},
		{event(`{"name":"cgroup","kind":"uint","size":4,"unit":"cgroup","at":16}`), "cgroup is not of its type"},
		{strings.Replace(event(), `"kind":"uint","size":8,"unit":"ns"`, `"kind":"string","size":8`, 1), "nsecs is not of its type"},
		{event(`{"name":"x","kind":"bool","size":1,"enum":"e","at":16}`), "x has names but is not a number"},
		{event(`{"name":"x","kind":"string","size":8,"enum":"e","at":16}`), "x has names but is not a number"},
		{event(`{"name":"x","kind":"string","size":8,"unit":"ns","at":16}`), "x has a unit but is not a number"},
		{event(`{"name":"x","kind":"bool","size":1,"unit":"cgroup","at":16}`), "x has names but is not a number"},
		{event(`{"name":"x","kind":"int","size":8,"unit":"ip","at":16}`), "x has a unit but is not a number"},
		{event(`{"name":"host","kind":"uint","size":4,"at":16}`), "have a field host, which belongs to the file"},
		{event(`{"name":"x","kind":"uint","size":4,"at":16}`, `{"name":"x","kind":"uint","size":4,"at":16}`), "have the field x twice"},
		{event(`{"name":"x\u001b[2J","kind":"uint","size":4,"at":16}`), `have a field "x\x1b[2J"`},
		{event(`{"name":"x","doc":"\u001b[2J","kind":"uint","size":4,"at":16}`), "without a readable description"},
		{event(`{"name":"x","kind":"uint","size":3,"at":16}`), "field x: no value of its kind has 3 bytes"},
		{event(`{"name":"x","kind":"uint","size":8,"at":60}`), "is not within a record"},
		{event(`{"name":"x","kind":"uint","size":8,"at":-9223372036854775800}`), "is not within a record"},
		{strings.Replace(event(), `"group":"a"`, `"group":"a\u001b"`, 1), `"a\x1b:b" is not a name of a probe`},
		{strings.Replace(event(), `["A"]`, `["A\u001b"]`, 1), "enum e has the name"},
		{strings.Replace(event(), `["A"]`, `["A","B"]`, 1), `corrupt: enum "e" of 2 names and 1 values`},
		{event(`{"name":"x","kind":"int","size":8,"unit":"cgroup","at":16}`), "field x is not an id of a cgroup"},
		{event(`{"name":"x","kind":"float","size":8,"at":16}`), `field x has the kind "float", which this trace does not know: use a newer trace`},
		{event(`{"name":"x","kind":"uint","size":8,"unit":"m","at":16}`), `field x has the unit "m", which this trace does not know: use a newer trace`},
		{event(`{"name":"x","kind":"uint","size":8,"enum":"f","at":16}`), `corrupt: no enum "f" of field x`},
		{strings.Replace(event(), nsecs, "", 1), "corrupt: events of a:b have no time"},
		{strings.Replace(event(), `"size":64`, `"size":4`, 1), "corrupt: records of a:b have 4 bytes"},
		{strings.Replace(event(), `"size":64`, `"size":64,"stacks":[{}]`, 1), "have 1 stacks"},
		{strings.Replace(event(), `"size":64`, `"size":64,"doc":"\u001b"`, 1), "have no readable description"},
		{strings.Replace(event(), `"host":"h"`, `"kernel":"`+strings.Repeat("k", 1000)+`"`, 1), "corrupt: the kernel's name is too long"},
		{strings.Replace(event(), `"host":"h"`, `"intervals":[5,6]`, 1), "2 intervals among 1 kinds of records"},
		{`{`, "corrupt: header: "},
		{strings.Replace(event(), `"host":"h"`, `"host":"`+strings.Repeat("h", 100)+`"`, 1), "corrupt: the host's name has 100 bytes"},
		{strings.Replace(event(), `"host":"h"`, `"intervals":[5]`, 1), "is not an interval of 5ns"},
		{`{"records":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`, "corrupt: a header with 1048578 objects"},
		{strings.Repeat(" ", maxHeader+1), "corrupt: a header of 4194305 bytes"},
		{`{"records":[` + strings.Repeat(`{"group":"a","name":"b","size":64,"fields":[`+nsecs+`]},`, maxRecords) + `{}]}`, "4097 kinds of records"},
	} {
		began := time.Now()
		_, r, err := readBytes(made([]byte(test.header), lossesBlock, 0, []byte("[]")))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%.200s: %v", test.header, took)
		}
		if (test.want == "") != (err == io.EOF) || test.want != "" && (r != nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%.300s: %v, want %q", test.header, err, test.want)
		}
	}
}

// As many kinds of records and fields as a file may have take no time that grows with their square.
func TestLargeHeader(t *testing.T) {
	h := fileHeader{Enums: map[string]enumDesc{}}
	for i := range maxRecords {
		r := recordDesc{Group: "g", Name: "n" + string(rune('a'+i%26)) + strings.Repeat("x", i/26), Size: 1 << 14}
		for j := range 12 {
			r.Fields = append(r.Fields, fieldDesc{Name: "f" + strings.Repeat("y", j), Kind: "uint", Size: 8, At: 16 + 8*j})
		}
		r.Fields[0] = fieldDesc{Name: "nsecs", Kind: "uint", Size: 8, Unit: "ns", At: 8}
		h.Records = append(h.Records, r)
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	text = text[:min(len(text), maxHeader)]
	began := time.Now()
	_, _, err = readBytes(made(text, lossesBlock, 0, []byte("[]")))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err != io.EOF && !strings.Contains(err.Error(), "corrupt") {
		t.Error(err)
	}
}

// flipped returns a block with a wrong last byte.
func flipped(block []byte) []byte {
	block = bytes.Clone(block)
	block[len(block)-1] ^= 1
	return block
}

// What is not a recording, or has a damaged header, is refused with the reason.
func TestDamagedBeginnings(t *testing.T) {
	whole := made([]byte(`{"host":"h","records":[]}`), lossesBlock, 0, []byte("[]"))
	changed := func(at int) []byte {
		data := bytes.Clone(whole)
		data[at] ^= 0x40
		return data
	}
	for want, data := range map[string][]byte{
		"not a recording of trace": []byte("something else, and long enough for a header"),
		"recording of format 66, but this trace reads formats up to 2: use a newer trace": changed(len(magic)),
		"corrupt: the checksum of the header is wrong":                                    changed(headerLength),
		"corrupt: the file ends within its header":                                        whole[:headerLength+3],
		"the header of a block is damaged":                                                changed(headerLength + 30),
		"no block begins here":                                                            madeOf([]byte(`{"host":"h","records":[]}`), block{kind: namesBlock + 1}, nil),
	} {
		if _, _, err := readBytes(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if _, err := Open(); err == nil || err.Error() != "no recording given" {
		t.Errorf("%v without a file", err)
	}
}

// Blocks that JSON is in are bounded, too.
func TestHostileBlocks(t *testing.T) {
	const h = `{"host":"h","records":[]}`
	for _, test := range []struct {
		kind    blockKind
		payload string
		want    string
	}{
		{lossesBlock, `[` + strings.Repeat(`{},`, 1<<20) + `{}]`, "more losses than there are probes"},
		{namesBlock, `{"cgroups":[` + strings.Repeat(`{},`, 5<<20) + `{}]}`, "more of them than a recording has"},
		{namesBlock, `{"stacks":[{"number":1,"addresses":[1],"frames":[]}]}`, "0 frames at 1 addresses"},
		{lossesBlock, `{`, "losses: "},
		{eventsBlock, "12345678", "the header of a block promises 0 events, the block has 0"},
	} {
		if _, _, err := readBytes(made([]byte(h), test.kind, 0, []byte(test.payload))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.50s: %v, want %q", test.payload, err, test.want)
		}
	}
}

// A block whose checksums are right may still hold what does not decompress to its length.
func TestBlocksThatDoNotDecompress(t *testing.T) {
	for name, stored := range map[string][]byte{
		"not compressed": []byte("12345678"), "nothing": nil, "shorter": packer().EncodeAll([]byte("1234567"), nil),
	} {
		file := madeOf([]byte(`{"host":"h","records":[]}`), block{kind: eventsBlock, raw: 8, count: 1}, stored)
		if _, _, err := readBytes(file); err == nil || !strings.Contains(err.Error(), "a block cannot be decompressed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRead changes what checksums guard, and makes them right.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"testdata/version2.rec", "../../scripts/testdata/rdma_errors.rec"} {
		whole, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		n := int(binary.LittleEndian.Uint32(whole[len(magic)+4:]))
		f.Add(whole[headerLength:headerLength+n], uint32(eventsBlock), uint32(1), make([]byte, 64))
	}
	f.Add([]byte(`{"host":"h","records":[{"group":"a","name":"b","size":24,"fields":[{"name":"nsecs","kind":"uint","size":8,"unit":"ns","at":8}]}]}`),
		uint32(eventsBlock), uint32(1), make([]byte, 24))
	f.Add([]byte(`{"records":[]}`), uint32(namesBlock), uint32(0), []byte(`{"cgroups":[{"id":1,"path":"/a"}],"stacks":[{"number":1,"addresses":[1],"frames":["a+1"]}]}`))
	f.Add([]byte(`{"records":[]}`), uint32(lossesBlock), uint32(0), []byte(`[{"probe":"a:b","lost":1}]`))
	f.Fuzz(func(t *testing.T, h []byte, kind, count uint32, payload []byte) {
		if len(h) > maxHeader || len(payload) > maxBlock {
			return
		}
		file := made(h, blockKind(kind), count, payload)
		_, _, _ = readBytes(file)
		begin, blocks := asVersion1Safe(file, len(h))
		_, _, _ = readBytes(append(begin, blocks...))
	})
}

// asVersion1Safe makes a file of version 1 of one with a block and the end.
func asVersion1Safe(file []byte, header int) (begin, rest []byte) {
	n := headerLength + header
	stored := int(binary.LittleEndian.Uint32(file[n+8:]))
	begin, blocks := asVersion1(file[:n], [][]byte{file[n : n+blockHeader+stored], file[n+blockHeader+stored:]})
	return begin, bytes.Join(blocks, nil)
}

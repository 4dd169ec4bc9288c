//go:build linux

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"os"
	"runtime"
	"sync"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// image is the BTF of the kernel or of a module, as the kernel shows it. It finds a few types by one pass over all of them. The library's
// index of 150,000 types takes 20 ms.
type image struct {
	base    *image // of a module: the kernel's
	strings []byte
	types   []byte
	first   uint32   // id of the first type
	offsets []uint32 // of each type in types
	named   table    // structs, unions, enums and typedefs
	seed    maphash.Seed
	mu      *sync.Mutex // the base's, as its types are made for the module, too
	done    map[uint32]btf.Type
	// functions makes its table when it is first needed: most programs look for none.
	functions func() (all table, shared map[uint32]bool)
}

// A table has the ids of types by kind and name. It is a hash table; a place with 0 is free.
type table struct {
	ids  []uint32
	used int
}

func newTable(size int) table { return table{ids: make([]uint32, 1<<bits.Len(uint(size)))} }

// btfHeader is struct btf_header of include/uapi/linux/btf.h.
type btfHeader struct {
	Magic           uint16
	Version, Flags  uint8
	Length          uint32
	Types, TypesLen uint32 // offsets count from the header's end
	Strs, StrsLen   uint32
}

const btfMagic = 0xeb9f

var errImage = errors.New("not the BTF of a kernel")

// readImage reads the BTF of the kernel, or of a module if base is the kernel's.
func readImage(path string, base *image) (*image, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	im, err := newImage(data, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	runtime.AddCleanup(im, func(struct{}) { unmap() }, struct{}{})
	return im, nil
}

// mapFile maps a file into memory. Kernels before "btf: Allow mmap of vmlinux btf" (6.16) do not, and give 4096 bytes a read.
func mapFile(path string) (data []byte, unmap func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err == nil {
		return data, func() { _ = unix.Munmap(data) }, nil
	}
	data, err = os.ReadFile(path)
	return data, func() {}, err
}

func newImage(data []byte, base *image) (*image, error) {
	var h btfHeader
	if err := binary.Read(bytes.NewReader(data), binary.NativeEndian, &h); err != nil || h.Magic != btfMagic {
		return nil, errImage
	}
	im := &image{base: base, first: 1, seed: maphash.MakeSeed(), mu: new(sync.Mutex), done: make(map[uint32]btf.Type)}
	im.functions = sync.OnceValues(im.listFunctions)
	if base != nil {
		im.mu = base.mu
		im.first = base.first + uint32(len(base.offsets))
	}
	var ok bool
	if im.types, ok = section(data, h.Length, h.Types, h.TypesLen); !ok {
		return nil, errImage
	}
	if im.strings, ok = section(data, h.Length, h.Strs, h.StrsLen); !ok {
		return nil, errImage
	}
	return im, im.index()
}

func section(data []byte, header, from, length uint32) ([]byte, bool) {
	begin := uint64(header) + uint64(from)
	end := begin + uint64(length)
	if end > uint64(len(data)) {
		return nil, false
	}
	return data[begin:end], true
}

// Kinds of types, BTF_KIND_* of the same header.
const (
	kindInt = 1 + iota
	kindPointer
	kindArray
	kindStruct
	kindUnion
	kindEnum
	kindForward
	kindTypedef
	kindVolatile
	kindConst
	kindRestrict
	kindFunc
	kindFuncProto
	kindVar
	kindDataSection
	kindFloat
	kindDeclTag
	kindTypeTag
	kindEnum64
)

// btfType is struct btf_type: what all kinds have.
type btfType struct {
	name, info, size uint32 // size is the id of a type for some kinds
	rest             []byte
}

func (t btfType) kind() uint32 { return t.info >> 24 & 0x1f }
func (t btfType) count() int   { return int(t.info & 0xffff) }
func (t btfType) flag() bool   { return t.info>>31 != 0 }

// Each type has these bytes before its own.
const typeBytes = 12

// A layout is how many bytes a kind has, and how many for each member. A kind without one is unknown.
type layout struct{ bytes, each int }

var layouts = [32]layout{
	kindInt: {typeBytes + 4, 0}, kindVar: {typeBytes + 4, 0}, kindDeclTag: {typeBytes + 4, 0},
	kindArray:  {typeBytes + 12, 0},
	kindStruct: {typeBytes, 12}, kindUnion: {typeBytes, 12}, kindDataSection: {typeBytes, 12}, kindEnum64: {typeBytes, 12},
	kindEnum: {typeBytes, 8}, kindFuncProto: {typeBytes, 8},
	kindPointer: {typeBytes, 0}, kindForward: {typeBytes, 0}, kindTypedef: {typeBytes, 0}, kindVolatile: {typeBytes, 0}, kindConst: {typeBytes, 0},
	kindRestrict: {typeBytes, 0}, kindFunc: {typeBytes, 0}, kindFloat: {typeBytes, 0}, kindTypeTag: {typeBytes, 0},
}

// hasNames are the kinds that are looked up by their names.
var hasNames = [32]bool{kindStruct: true, kindUnion: true, kindEnum: true, kindEnum64: true, kindTypedef: true}

func word(data []byte, i int) uint32 { return binary.NativeEndian.Uint32(data[4*i:]) }

// index finds where each type begins.
func (im *image) index() error {
	im.offsets = make([]uint32, 0, len(im.types)/24)
	im.named = newTable(len(im.types) / 64)
	for rest := im.types; len(rest) > 0; {
		if len(rest) < typeBytes {
			return errImage
		}
		info := word(rest, 1)
		l := &layouts[info>>24&0x1f]
		length := l.bytes + l.each*int(info&0xffff)
		if l.bytes == 0 || len(rest) < length {
			return errImage
		}
		im.offsets = append(im.offsets, uint32(len(im.types)-len(rest)))
		if hasNames[info>>24&0x1f] && word(rest, 0) != 0 {
			im.remember(&im.named, im.first+uint32(len(im.offsets))-1, btfType{name: word(rest, 0), info: info})
		}
		rest = rest[length:]
	}
	return nil
}

// remember makes a type known by its name. Of types of the same kind and name, the first one is found; fresh is false for the others.
func (im *image) remember(names *table, id uint32, t btfType) (fresh bool) {
	if names.used++; 2*names.used > len(names.ids) {
		before := names.ids
		names.ids = make([]uint32, 2*len(before))
		for _, other := range before {
			if other != 0 {
				im.put(*names, other, im.of(other))
			}
		}
	}
	return im.put(*names, id, t)
}

func (im *image) put(names table, id uint32, t btfType) (fresh bool) {
	at := im.place(names, t.kind(), im.name(t.name))
	for names.ids[at] != 0 {
		if other := im.of(names.ids[at]); other.name == t.name && other.kind() == t.kind() {
			return false
		}
		at = (at + 1) & (len(names.ids) - 1)
	}
	names.ids[at] = id
	return true
}

// place returns where a search for a kind and a name begins.
func (im *image) place(names table, kind uint32, name []byte) int {
	return int((maphash.Bytes(im.seed, name) + uint64(kind)) & uint64(len(names.ids)-1))
}

// lookup returns the id of the first type of that kind and name, 0 if there is none.
func (im *image) lookup(names table, kind uint32, name []byte) uint32 {
	for at := im.place(names, kind, name); names.ids[at] != 0; at = (at + 1) & (len(names.ids) - 1) {
		if t := im.of(names.ids[at]); t.kind() == kind && bytes.Equal(im.name(t.name), name) {
			return names.ids[at]
		}
	}
	return 0
}

func (im *image) head(at int) btfType {
	data := im.types[at:]
	return btfType{name: word(data, 0), info: word(data, 1), size: word(data, 2), rest: data[typeBytes:]}
}

// bytesFrom returns the strings from an offset on. A module's begin where the kernel's end.
func (im *image) bytesFrom(offset uint32) []byte {
	if im.base != nil {
		shared := uint32(len(im.base.strings))
		if offset < shared {
			return im.base.bytesFrom(offset)
		}
		offset -= shared
	}
	return im.strings[min(offset, uint32(len(im.strings))):]
}

func (im *image) name(offset uint32) []byte {
	name := im.bytesFrom(offset)
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	return name
}

// find returns the type of that name and of the view's kind, without what pointers point to: see pruner.
func (im *image) find(name string, view btf.Type) (btf.Type, error) {
	var kinds []uint32
	switch view.(type) {
	case *btf.Struct:
		kinds = []uint32{kindStruct}
	case *btf.Union:
		kinds = []uint32{kindUnion}
	case *btf.Enum:
		kinds = []uint32{kindEnum, kindEnum64}
	case *btf.Typedef:
		kinds = []uint32{kindTypedef}
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, kind := range kinds {
		if id := im.lookup(im.named, kind, []byte(name)); id != 0 {
			return im.inflate(id)
		}
	}
	return nil, btf.ErrNotFound
}

// parameters: the typedef leads to a pointer, and that to the function.
func (im *image) parameters(typedef string) (n int, ok bool) {
	im.mu.Lock()
	id := im.lookup(im.named, kindTypedef, []byte(typedef))
	im.mu.Unlock()
	t := im.of(im.of(im.of(id).size).size)
	return t.count(), t.kind() == kindFuncProto
}

// of returns a type by its id; one without a kind if there is none.
func (im *image) of(id uint32) btfType {
	switch {
	case id < im.first && im.base != nil:
		return im.base.of(id)
	case id < im.first || id-im.first >= uint32(len(im.offsets)):
		return btfType{}
	}
	return im.head(int(im.offsets[id-im.first]))
}

// inflate makes the library's form of a type.
func (im *image) inflate(id uint32) (btf.Type, error) {
	if id == 0 {
		return (*btf.Void)(nil), nil
	}
	if id < im.first {
		if im.base == nil {
			return nil, errImage
		}
		return im.base.inflate(id)
	}
	if made, ok := im.done[id]; ok {
		return made, nil
	}
	if id-im.first >= uint32(len(im.offsets)) {
		return nil, errImage
	}
	im.done[id] = (*btf.Void)(nil) // no type lies inside itself
	made, err := im.make(im.head(int(im.offsets[id-im.first])))
	im.done[id] = made
	return made, err
}

func (im *image) make(t btfType) (btf.Type, error) {
	name := string(im.name(t.name))
	switch t.kind() {
	case kindInt:
		return &btf.Int{Name: name, Size: t.size, Encoding: btf.IntEncoding(word(t.rest, 0) >> 24 & 0xf)}, nil
	case kindPointer:
		return &btf.Pointer{Target: (*btf.Void)(nil)}, nil
	case kindArray:
		element, err := im.inflate(word(t.rest, 0))
		if err != nil {
			return nil, err
		}
		index, err := im.inflate(word(t.rest, 1))
		return &btf.Array{Type: element, Index: index, Nelems: word(t.rest, 2)}, err
	case kindStruct:
		members, err := im.members(t)
		return &btf.Struct{Name: name, Size: t.size, Members: members}, err
	case kindUnion:
		members, err := im.members(t)
		return &btf.Union{Name: name, Size: t.size, Members: members}, err
	case kindEnum, kindEnum64:
		return &btf.Enum{Name: name, Size: t.size, Signed: t.flag(), Values: im.values(t)}, nil
	case kindForward:
		kind := btf.FwdStruct
		if t.flag() {
			kind = btf.FwdUnion
		}
		return &btf.Fwd{Name: name, Kind: kind}, nil
	case kindFloat:
		return &btf.Float{Name: name, Size: t.size}, nil
	}
	return im.qualified(t, name)
}

// qualified makes a type that stands for another.
func (im *image) qualified(t btfType, name string) (btf.Type, error) {
	of, err := im.inflate(t.size)
	switch t.kind() {
	case kindTypedef:
		return &btf.Typedef{Name: name, Type: of}, err
	case kindVolatile:
		return &btf.Volatile{Type: of}, err
	case kindConst:
		return &btf.Const{Type: of}, err
	case kindRestrict:
		return &btf.Restrict{Type: of}, err
	case kindTypeTag:
		return of, err
	}
	return nil, fmt.Errorf("%w: kind %d inside a type", errImage, t.kind())
}

func (im *image) members(t btfType) ([]btf.Member, error) {
	members := make([]btf.Member, t.count())
	for i := range members {
		raw := t.rest[12*i:]
		of, err := im.inflate(word(raw, 1))
		if err != nil {
			return nil, err
		}
		m := btf.Member{Name: string(im.name(word(raw, 0))), Type: of, Offset: btf.Bits(word(raw, 2))}
		if t.flag() { // the upper bits are the size of a bitfield
			m.Offset, m.BitfieldSize = m.Offset&0xffffff, m.Offset>>24
		}
		members[i] = m
	}
	return members, nil
}

func (im *image) values(t btfType) []btf.EnumValue {
	values := make([]btf.EnumValue, t.count())
	for i := range values {
		if t.kind() == kindEnum64 {
			raw := t.rest[12*i:]
			values[i] = btf.EnumValue{Name: string(im.name(word(raw, 0))), Value: uint64(word(raw, 1)) | uint64(word(raw, 2))<<32}
			continue
		}
		raw := t.rest[8*i:]
		v := btf.EnumValue{Name: string(im.name(word(raw, 0))), Value: uint64(word(raw, 1))}
		if t.flag() {
			v.Value = uint64(int64(int32(word(raw, 1))))
		}
		values[i] = v
	}
	return values
}

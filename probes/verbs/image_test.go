//go:build linux

package verbs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openImage reads the headers of a file.
func openImage(t testing.TB, path string) *image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := readImage(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// tables returns the offsets of functions whose addresses the dynamic linker puts into data, as it does with tables of operations.
func tables(t *testing.T, path string, m *image) (all []uint64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	relocations, err := f.Section(".rela.dyn").Data()
	if err != nil {
		t.Fatal(err)
	}
	fini := []string{".init_array", ".fini_array"} // frame_dummy and the like belong to the C runtime
	for i := 0; i+24 <= len(relocations); i += 24 {
		at, addend := f.ByteOrder.Uint64(relocations[i:]), f.ByteOrder.Uint64(relocations[i+16:])
		inFini := slices.ContainsFunc(fini, func(name string) bool {
			s := f.Section(name)
			return s != nil && s.Addr <= at && at < s.Addr+s.Size
		})
		if text := f.Section(".text"); !inFini && text.Addr <= addend && addend < text.Addr+text.Size {
			offset, ok := m.offset(addend)
			if !ok {
				t.Fatalf("%#x is in no segment of code", addend)
			}
			all = append(all, offset)
		}
	}
	return all
}

// Every provider of Debian 11, 12, 13 and sid is one, and each function of its tables begins where a function begins by its .eh_frame.
func TestProviders(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			lib := filepath.Join(cache, "trace-libibverbs", release, "usr/lib/x86_64-linux-gnu")
			providers, err := filepath.Glob(filepath.Join(lib, "libibverbs/*.so"))
			if err != nil || len(providers) == 0 {
				t.Skipf(".ci/setup libibverbs has not been run: %v", err)
			}
			checked := 0
			for _, path := range providers {
				m := openImage(t, path)
				if err := m.provider(); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				functions, err := m.functions()
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				for _, at := range tables(t, path, m) {
					checked++
					if _, ok := slices.BinarySearch(functions, at); !ok {
						t.Errorf("%s+%#x is in a table, and no function begins there", path, at)
					}
				}
				if id := m.buildID(); len(id) != 40 {
					t.Errorf("%s: the build id is %q", path, id)
				}
			}
			if len(providers) < 15 || checked < 500 {
				t.Errorf("only %d providers and %d functions", len(providers), checked)
			}
			for _, name := range []string{"libibverbs.so.1", "libc.so.6"} {
				if err := openImage(t, filepath.Join(lib, name)).provider(); err == nil || !strings.Contains(err.Error(), "* of libibverbs, so it is no provider") && name != "libc.so.6" {
					t.Errorf("%s is taken for a provider: %v", name, err)
				}
			}
		})
	}
}

// A program is no provider, whatever it needs.
func TestProgramIsNoProvider(t *testing.T) {
	m := openImage(t, "/bin/ls")
	if err := m.provider(); err == nil || !strings.Contains(err.Error(), "it is a program, and no library") {
		t.Errorf("ls: %v", err)
	}
	if functions, err := m.functions(); err != nil || len(functions) < 50 {
		t.Errorf("%d functions of ls, %v", len(functions), err)
	}
}

// What is broken is refused with what it is.
func TestBrokenImages(t *testing.T) {
	if _, err := readImage(strings.NewReader("#!/bin/sh")); err == nil || err.Error() != "it is no ELF file of this machine's kind" {
		t.Error(err)
	}
	head := "\x01\x1b\x03\x3b\x08\x00\x00\x00\x00\x00\x00\x00" // .eh_frame follows
	for data, want := range map[string]string{
		"":                         "it has no .eh_frame",
		strings.Repeat("\x00", 64): "its .eh_frame_hdr is broken",
		head + "\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00": "its .eh_frame is broken",
		head + "\xff\xff\xff\x00\x00\x00\x00\x00":                 "its .eh_frame is broken",
		head + "\x08\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00": "its .eh_frame is of an unknown kind",
	} {
		m := &image{ReaderAt: strings.NewReader(data), loads: []elf.Prog64{{Vaddr: 0x1000, Filesz: uint64(len(data))}}}
		if data != "" {
			m.frames = 0x1000
		}
		if _, err := m.functions(); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
}

// A part of a function that is jumped to (.cold) and the beginning of .plt have entries in .eh_frame, too. Neither is called: a probe at its return
// would replace what is on top of the stack.
func TestPartsOfFunctions(t *testing.T) {
	order := binary.NativeEndian
	for fde, begins := range map[string]bool{
		"\x00\x00\x00\x00\x00\x00\x00": true,  // no instructions but DW_CFA_nop
		"\x00\x41\x0e\x10\x83\x02\x00": true,  // push %rbx: advance 1, def_cfa_offset 16
		"\x00\x02\x44\x0e\x10\x00\x00": true,  // advance_loc1
		"\x00\x01\x00\x00\x00\x00\x00": true,  // set_loc
		"\x00\x0e\x60\x83\x02\x00\x00": false, // .cold: def_cfa_offset 96
		"\x00\x00\x0c\x06\x10\x86\x02": false, // .cold with a frame pointer: def_cfa %rbp, 16
		"\x00\x0e\x10\x46\x0e\x18\x4a": false, // .plt
		"\x04\x00\x00\x00\x00\x41\x0e": true,  // with a language's data
		"\x04\x41\x41\x41\x41\x0e\x60": false,
		"\x7f\x41\x41\x41\x41\x41\x41": false, // broken
		"\xff\xff\xff\xff\xff\xff\xff": false,
	} {
		cie := "\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\x00\x00"
		frames := order.AppendUint32(nil, uint32(4+len(cie)))
		frames = append(order.AppendUint32(frames, 0), cie...)
		at := len(frames)
		frames = order.AppendUint32(frames, uint32(12+len(fde)))
		frames = order.AppendUint32(frames, uint32(at+4))
		frames = order.AppendUint32(frames, uint32(0x2000-(0x1000+12+at+8))) // from there
		frames = append(order.AppendUint32(frames, 16), fde...)
		data := "\x01\x1b\x03\x3b\x08\x00\x00\x00\x00\x00\x00\x00" + string(frames)
		m := &image{ReaderAt: strings.NewReader(data), frames: 0x1000, loads: []elf.Prog64{
			{Vaddr: 0x1000, Filesz: uint64(len(data))}, {Vaddr: 0x2000, Filesz: 64, Off: 512, Flags: uint32(elf.PF_X)}}}
		want := []uint64{512}
		if !begins {
			want = nil
		}
		if got, err := m.functions(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%x: %v, %v, want %v", fde, got, err, want)
		}
	}
}

// Whatever is in a file, it is read within bounds.
func FuzzImage(f *testing.F) {
	library, err := os.ReadFile("/lib/x86_64-linux-gnu/libdl.so.2")
	if err != nil {
		library = binary.NativeEndian.AppendUint64([]byte(elf.ELFMAG), 0)
	}
	f.Add(library)
	f.Add([]byte(elf.ELFMAG + "\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readImage(bytes.NewReader(data))
		if err != nil {
			return
		}
		_ = m.provider()
		functions, err := m.functions()
		if !slices.IsSorted(functions) || len(functions) > mostFunctions || err != nil && functions != nil {
			t.Errorf("%d functions, %v", len(functions), err)
		}
		for _, at := range functions {
			if at >= uint64(len(data)) && len(m.loads) == 0 {
				t.Errorf("a function at %#x", at)
			}
		}
		_ = m.buildID()
	})
}

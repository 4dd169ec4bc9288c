//go:build linux

package proc

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMappings(t *testing.T) {
	for line, want := range map[string]Mapping{
		"7f1e2a000000-7f1e2a022000 r-xp 00026000 fe:01 1234                       /usr/lib/x y (deleted)": {
			Start: 0x7f1e2a000000, End: 0x7f1e2a022000, Perms: "r-xp", Offset: 0x26000, Major: 0xfe, Minor: 1, Inode: 1234, Path: "/usr/lib/x y (deleted)"},
		"7ffd1000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]": {Start: 0x7ffd1000, End: 0x7ffd2000, Perms: "r-xp", Path: "[vdso]"},
		"1000-2000 rw-s 00000000 00:00 0 ":                                        {Start: 0x1000, End: 0x2000, Perms: "rw-s"},
		`1000-2000 r--p 00000000 103:04 18446744073709551615 /a\012b`: {Start: 0x1000, End: 0x2000, Perms: "r--p", Major: 0x103, Minor: 4,
			Inode: 1<<64 - 1, Path: "/a\nb"},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]": {Start: 0xffffffffff600000, End: 0xffffffffff601000, Perms: "--xp", Path: "[vsyscall]"},
	} {
		got, err := ReadMappings(strings.NewReader(line + "\n"))
		if err != nil || !slices.Equal(got, []Mapping{want}) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{
		"", "x", "7f00 rw-p 0 00:00 0 ", "7f00-x rw-p 00000000 00:00 0 ", "7f00-8f00 rw 0 00:00 0 ", "2000-1000 r-xp 00000000 00:00 0 ", "1-2 r-xp zz fd:01 1", "1-2 r-xp 0 fd:01 x",
		"1-2 r-xp 0 fd01 1", "1-2 r-xp 0 fd:01",
	} {
		if got, err := ReadMappings(strings.NewReader(line + "\n")); err == nil || !strings.HasSuffix(err.Error(), "is not a mapping of a process") {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

// A name may have any bytes.
func TestStat(t *testing.T) {
	rest := "17 " + strings.Repeat("7 ", 17) + "4711 9 9"
	for text, want := range map[string]string{"12 (work) S " + rest: "work", "12 (a) (b) 3) R " + rest: "a) (b) 3"} {
		s, err := parseStat(text)
		if err != nil || s.Name != want {
			t.Fatalf("%q: %+v, %v", text, s, err)
		}
		for field, want := range map[int]uint64{Parent: 17, StartTime: 4711} {
			if n, err := s.Number(field); n != want || err != nil {
				t.Errorf("%q: field %d is %d, %v", text, field, n, err)
			}
		}
		if n, err := s.Number(Processor); err == nil || err.Error() != fmt.Sprintf("22 fields after the name %q", want) {
			t.Errorf("%q: field %d is %d, %v", text, Processor, n, err)
		}
	}
	for _, text := range []string{"", "12", "12 (work"} {
		if s, err := parseStat(text); err == nil || err.Error() != fmt.Sprintf("no name in %q", text) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

// This process is the oracle: its parent, its name, and that its code is mapped.
func TestOfThisProcess(t *testing.T) {
	pid := os.Getpid()
	stat, err := ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	if parent, err := stat.Number(Parent); err != nil || parent != uint64(os.Getppid()) {
		t.Errorf("the parent is %d, %v", parent, err)
	}
	if name := Status(pid)["Name"]; !slices.Equal(name, []string{stat.Name}) {
		t.Errorf("the name is %q, and %q", name, stat.Name)
	}
	maps, err := Mappings(pid)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(maps, func(m Mapping) bool { return m.Executable() && !m.Shared() && m.Path == exe }) {
		t.Errorf("%s has no code in %+v", exe, maps)
	}
	const noPID = 1 << 30
	if _, err := Mappings(noPID); err == nil {
		t.Error("a process that does not exist has mappings")
	}
	if _, err := ReadStat(noPID); err == nil || Status(noPID) != nil {
		t.Error("a process that does not exist has a status")
	}
}

// What this process has written is anonymous, and its code is not.
func TestUsages(t *testing.T) {
	written := make([]byte, 8<<20)
	for i := range written {
		written[i] = 1
	}
	all, err := Usages(os.Getpid())
	if err != nil {
		t.Skipf("this kernel does not have the file: %v", err)
	}
	var anonymous uint64
	for _, u := range all {
		anonymous += u.Anonymous
		if u.Executable() && u.Anonymous != 0 {
			t.Errorf("%d bytes of code were changed: %+v", u.Anonymous, u)
		}
	}
	runtime.KeepAlive(written)
	if anonymous < uint64(len(written)) {
		t.Errorf("%d bytes are anonymous, want at least %d", anonymous, len(written))
	}
	maps, err := Mappings(os.Getpid())
	if err != nil || len(all) < len(maps)/2 {
		t.Errorf("%d mappings of %d, %v", len(all), len(maps), err)
	}
}

func TestReadUsages(t *testing.T) {
	const one = "400000-bd8000 r-xp 00000000 fe:00 9987 /usr/bin/trace\nSize: 8032 kB\nAnonymous:             8 kB\nVmFlags: rd ex mr mw me\n"
	all, err := ReadUsages(strings.NewReader(one + "1000-2000 rw-p 00000000 00:00 0 \nRss: 4 kB\n"))
	if err != nil || len(all) != 2 || all[0].Anonymous != 8192 || all[0].Path != "/usr/bin/trace" || all[1].Anonymous != 0 || all[1].Start != 0x1000 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, wrong := range []string{"no mapping\n", one + "Anonymous: many kB\n"} {
		if _, err := ReadUsages(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

func FuzzUsages(f *testing.F) {
	f.Add("7f1e2a000000-7f1e2a022000 r-xp 00026000 fe:01 1234 /usr/lib/x\nAnonymous: 4 kB\nVmFlags: rd\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadUsages(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, u := range all {
			if u.End <= u.Start || len(u.Perms) != 4 {
				t.Fatalf("%+v", u)
			}
		}
	})
}

func FuzzMappings(f *testing.F) {
	f.Add("7f1e2a000000-7f1e2a022000 r-xp 00026000 fe:01 1234 /usr/lib/x\n1000-2000 rw-p 00000000 00:00 0 \n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadMappings(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range all {
			if m.End <= m.Start || len(m.Perms) != 4 {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add("12 (a) (b) 3) R 1 2 3")
	f.Fuzz(func(_ *testing.T, text string) {
		if s, err := parseStat(text); err == nil {
			s.Number(StartTime)
		}
	})
}

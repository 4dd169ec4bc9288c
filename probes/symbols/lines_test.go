//go:build linux

package symbols

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const linesSource = `
#include "inlined.h"
static int twice(int x) { return 2 * x; }
__attribute__((section(".text.far"))) int far(int x)
{
	for (int i = 0; i < 3; i++)
		x += twice(i) + inlined(x);
	return x;
}
int main(int n, char **v)
{
	int sum = 0;
	while (n--)
		sum += far(n);
#line 70000 "other file.c"
	return sum + twice(sum);
}
`

// Line numbers are the same as debug/dwarf's, for each address of what compilers make.
func TestLinesAgree(t *testing.T) {
	for _, compiler := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Logf("needs %s", compiler)
			continue
		}
		for _, flags := range [][]string{
			{"-gdwarf-2", "-gstrict-dwarf"}, {"-gdwarf-3"}, {"-gdwarf-4", "-O2", "-ffunction-sections"}, {"-gdwarf-5"}, {"-gdwarf-5", "-O2", "-ffunction-sections"},
			{"-gdwarf-5", "-gz"}, {"-gdwarf-4", "-gz"}, {"-gdwarf-5", "-m32", "-c"},
		} {
			name := compiledBy(t, compiler, flags)
			if name == "" {
				continue
			}
			compareLines(t, name, flags)
		}
	}
	if own, err := os.Executable(); err == nil {
		compareLines(t, own, nil) // go test strips it, unless it keeps what it builds
	}
}

// compiledBy compiles a program, and returns its file.
func compiledBy(t testing.TB, compiler string, flags []string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.c": linesSource, "inlined.h": "static inline int inlined(int x)\n{\n\treturn x * 7;\n}\n", "b.c": "int other(int x)\n{\n\treturn x + 1;\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append(flags, "-o", "out", "a.c")
	if flags[len(flags)-1] != "-c" {
		args = append(args, "b.c")
	}
	cmd := exec.Command(compiler, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%s %v: %v: %s", compiler, flags, err, out)
		return ""
	}
	return filepath.Join(dir, "out")
}

func compareLines(t *testing.T, name string, flags []string) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil || f.Type == elf.ET_REL {
		return
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	im, _, unread, err := imageOf(file, name, nil)
	if err != nil || unread != nil {
		t.Fatal(err, unread)
	}
	if im.lines == nil {
		return
	}
	different, same := 0, 0
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, ".text") {
			continue
		}
		for a := s.Addr; a < s.Addr+min(s.Size, 1024); a++ {
			want := placeOf(data, a)
			im.cost.begin(findSteps)
			got, err := im.lines.place(a, im.cost)
			if err != nil || filepath.Base(got.file) != filepath.Base(want.file) || got.line != want.line {
				if different++; different < 10 {
					t.Errorf("%s %v: %#x: %v, want %v (%v)", name, flags, a, got, want, err)
				}
			} else if got.line != 0 {
				same++
			}
		}
	}
	if different == 0 && same < 10 {
		t.Errorf("%v: %d addresses have lines", flags, same)
	}
}

// placeOf is what debug/dwarf finds.
func placeOf(data *dwarf.Data, address uint64) (found place) {
	unit, err := data.Reader().SeekPC(address)
	if err != nil {
		return place{}
	}
	lines, err := data.LineReader(unit)
	if err != nil || lines == nil {
		return place{}
	}
	// Its SeekPC wants sequences in the order of their addresses.
	var before, entry dwarf.LineEntry
	for known := false; lines.Next(&entry) == nil; known = !entry.EndSequence {
		if known && before.Address <= address && address < entry.Address && before.File != nil && before.Line != 0 {
			return place{before.File.Name, before.Line}
		}
		before = entry
	}
	return place{}
}

// Whatever tables of line numbers hold, they are read in bounds.
func FuzzLines(f *testing.F) {
	f.Add(unitOf(0, 0), abbrevOf, bits(uint64(0x1000), uint64(0x2000), uint64(0), uint64(0)), []byte{0, 0, 0, 0}, uint64(0x1010))
	if name := compiledBy(f, "gcc", []string{"-gdwarf-5"}); name != "" {
		if all, err := elf.Open(name); err == nil {
			var sections [][]byte
			for _, s := range []string{".debug_info", ".debug_abbrev", ".debug_rnglists", ".debug_line"} {
				var data []byte
				if s := all.Section(s); s != nil {
					data, _ = s.Data()
				}
				sections = append(sections, data)
			}
			f.Add(sections[0], sections[1], sections[2], sections[3], uint64(0x1140))
		}
	}
	f.Fuzz(func(t *testing.T, info, abbrev, ranges, line []byte, address uint64) {
		file := madeELF(debug("info", info), debug("abbrev", abbrev), debug("ranges", ranges), debug("rnglists", ranges), debug("line", line), debug("addr", ranges), debug("line_str", line))
		im, _, _, err := imageOf(bytes.NewReader(file), "/x", nil)
		if err != nil {
			t.Fatal(err) // the headers are right
		}
		if im.lines == nil {
			return
		}
		for _, s := range append(im.lines.spans, span{address, 0, 0}) {
			im.cost.begin(findSteps)
			if p, err := im.lines.place(s.from, im.cost); err != nil && !isCostly(err) || p.line < 0 || len(p.file) > maxName {
				t.Fatal(p.line, err)
			}
			if im.cost.steps > findSteps+blockSteps*maxTable/blockSize {
				t.Fatalf("%d steps", im.cost.steps)
			}
		}
	})
}

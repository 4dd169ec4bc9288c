package run

import (
	"slices"
	"strings"
	"testing"
)

// SplitWords returns the words of a shell, without expansions.
func TestSplitWords(t *testing.T) {
	for command, want := range map[string][]string{
		`fio --name=x --filename=/dev/nvme0n1`:        {"fio", "--name=x", "--filename=/dev/nvme0n1"},
		`sh -c "a b; c" 'd "e"'`:                      {"sh", "-c", "a b; c", `d "e"`},
		`a\ b 'c d'"e f"\g`:                           {"a b", "c de fg"},
		`a "" ''`:                                     {"a", "", ""},
		`a "x\ny\$z\"\\" 'x\y\\'`:                     {"a", `x\ny$z"\`, `x\y\\`},
		`a $HOME "$HOME ${x:-y z}" *.go {b,c} ~ [d]?`: {"a", "$HOME", "$HOME ${x:-y z}", "*.go", "{b,c}", "~", "[d]?"},
		"a $(b c) `d e` \"$(f \"g\")\"":               {"a", "$(b c)", "`d e`", `$(f "g")`},
		" a\tb\nc ":                                   {"a", "b", "c"},
		`ü 'ö ä'`:                                     {"ü", "ö ä"},
		` `:                                           nil,
	} {
		if got, err := SplitWords(command); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q: %v", command, got, want, err)
		}
	}
	for command, want := range map[string]string{
		`a 'b`: "without closing quote", `a "b`: "without closing quote", `a; b`: "no shell", `a | b`: "no shell", `a > b`: "no shell", `a & b`: "no shell",
		`a (b)`: "no shell",
	} {
		if got, err := SplitWords(command); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q and %v, want an error with %q", command, got, err, want)
		}
	}
}

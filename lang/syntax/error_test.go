package syntax

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// The part of a long line around the mistake is shown, with the caret below it.
func TestWindow(t *testing.T) {
	for _, before := range []int{0, 1, 20, 36, 37, 38, 73, 74, 75, 300, 10_000_000} {
		for _, after := range []int{0, 1, 30, 60, 300, 1_000_000} {
			src := strings.Repeat("b", before) + "?" + strings.Repeat("a", after)
			e := Text{Name: "f", Content: src}.Error(Span{before, before + 1}, "wrong", "")
			lines := strings.Split(e.Error(), "\n")
			if len(lines) != 3 || e.Col != before+1 {
				t.Fatalf("%d %d: %.300s", before, after, e.Error())
			}
			shown, caret := []rune(lines[1]), strings.IndexByte(lines[2], '^')
			if len(shown) > 78 || shown[caret] != '?' || lines[2][caret:] != "^" {
				t.Errorf("%d before and %d after:\n%s", before, after, e.Error())
			}
			if whole := before+after+1 <= maxWindow; whole != (lines[1] == "    "+src) || whole == strings.Contains(lines[1], "…") {
				t.Errorf("%d before and %d after:\n%s", before, after, e.Error())
			}
			// One side gets the room that the other does not need.
			if before+after+1 > maxWindow && len(shown) != 4+maxWindow {
				t.Errorf("%d before and %d after: %d columns", before, after, len(shown))
			}
		}
	}
}

func TestLongMark(t *testing.T) {
	src := strings.Repeat("b", 50) + strings.Repeat("m", 500) + "after"
	got := Text{Name: "f", Content: src}.Error(Span{50, 550}, "wrong", "").Error()
	lines := strings.Split(got, "\n")
	caret := strings.IndexByte(lines[2], '^')
	if utf8.RuneCountInString(lines[1]) > 78 || []rune(lines[1])[caret] != 'm' || []rune(lines[1])[caret-1] != 'b' || len(lines[2]) > 78 {
		t.Error(got)
	}
}

// Control characters, as in a binary file, do not reach the terminal.
func TestControlCharacters(t *testing.T) {
	src := "a\x1b[31m\xff\x07 \"q\" \\ é\tx \x7fELF ? b\u202e"
	at := strings.IndexByte(src, '?')
	got := Text{Name: "f\x1b.trace", Content: src}.Error(Span{at, at + 1}, "unexpected \x1b", "not \xff").Error()
	const want = "f\\x1b.trace:1:25: unexpected \\x1b\n" +
		`    a\x1b[31m\xff\a "q" \ é` + "\t" + `x \x7fELF ? b\u202e` + "\n" +
		"                           \t          ^\nhelp: not \\xff"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, src := range []string{"\x7fELF\x02\x01\x01\x00", "\x1b]0;title\x07 / a /", "begin { \x1b[2J }", "\"\x1b\x00"} {
		_, err := Parse("program", src)
		if text := fmt.Sprint(err); err == nil || strings.ContainsAny(text, "\x00\x01\x02\x07\x1b\x7f") {
			t.Errorf("%q: %q", src, text)
		}
	}
}

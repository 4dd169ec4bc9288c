package console

import (
	"fmt"
	"io"
	"os"
	"regexp"

	"golang.org/x/term"

	"trace/lang/run"
)

// Mistakes prints the mistakes of a program, or what it warns about. On a terminal the places, the underlined part and the advice have
// colours.
func Mistakes(to io.Writer, mistakes error) {
	text := mistakes.Error()
	if HasColours(to) {
		text = painted(text)
	}
	fmt.Fprintln(to, text)
}

// HasColours reports whether a stream is a terminal with colours, whose user wants them (https://no-color.org).
func HasColours(stream any) bool {
	f := run.FileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The colours of compilers. Each pattern finds its lines in the text of syntax.Error; what it shows of the program has no control characters.
var paints = []struct {
	line *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^(\S.*?:\d+:\d+:) `), "\x1b[1m$1\x1b[0m "},
	{regexp.MustCompile(`(?m)^([ \t]+)(\^~*)$`), "$1\x1b[1;31m$2\x1b[0m"},
	{regexp.MustCompile(`(?m)^help:`), "\x1b[36m$0\x1b[0m"},
}

func painted(text string) string {
	for _, p := range paints {
		text = p.line.ReplaceAllString(text, p.with)
	}
	return text
}

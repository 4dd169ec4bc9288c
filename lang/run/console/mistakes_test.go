package console

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"testing"

	"github.com/creack/pty"

	"trace/lang/syntax"
)

// A terminal shows the text that a file gets, with colours, unless the user wants none.
func TestMistakes(t *testing.T) {
	program := syntax.Text{Name: "program", Content: "x; ^ y"}
	err := errors.Join(program.Error(syntax.Span{From: 3, To: 6}, "1:2: is wrong", "do help: this"), program.Error(syntax.Span{From: 0, To: 1}, "no x", ""))
	var plain bytes.Buffer
	Mistakes(&plain, err)
	if want := err.Error() + "\n"; plain.String() != want {
		t.Errorf("%q, want %q", plain.String(), want)
	}
	const coloured = "\x1b[1mprogram:1:4:\x1b[0m 1:2: is wrong\r\n    x; ^ y\r\n       \x1b[1;31m^~~\x1b[0m\r\n\x1b[36mhelp:\x1b[0m do help: this\r\n" +
		"\x1b[1mprogram:1:1:\x1b[0m no x\r\n    x; ^ y\r\n    \x1b[1;31m^\x1b[0m\r\n"
	without := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured, "")
	for _, c := range []struct{ term, noColour, want string }{
		{"xterm", "", coloured}, {"xterm", "1", without}, {"dumb", "", without},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColour)
		if got := onTerminal(t, err, len(c.want)); got != c.want {
			t.Errorf("TERM=%s NO_COLOR=%s: %q, want %q", c.term, c.noColour, got, c.want)
		}
	}
}

// onTerminal returns n bytes of what a terminal receives.
func onTerminal(t *testing.T, err error, n int) string {
	t.Helper()
	master, slave, openErr := pty.Open()
	if openErr != nil {
		t.Fatal(openErr)
	}
	defer master.Close()
	defer slave.Close()
	Mistakes(slave, err)
	Mistakes(slave, errors.New("end")) // the read does not wait
	got := make([]byte, n+len("end\r\n"))
	read, _ := readAll(master, got)
	return string(bytes.TrimSuffix(got[:read], []byte("end\r\n")))
}

// readAll reads until the buffer is full or ends with the last line.
func readAll(from *os.File, buf []byte) (n int, err error) {
	for n < len(buf) && !bytes.HasSuffix(buf[:n], []byte("end\r\n")) && err == nil {
		var m int
		m, err = from.Read(buf[n:])
		n += m
	}
	return n, err
}

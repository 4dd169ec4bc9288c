package repl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"golang.org/x/term"
)

// pasteFilter stands between the terminal and liner, which does not support bracketed paste. The terminal puts pasted text between
// two marks (xterm control sequences, "Bracketed Paste Mode"). The filter makes one line of it, without tabs, which would start
// completion.
type pasteFilter struct {
	terminal bool
	stdin    *os.File
	out      *os.File // the filtered input; nil if nothing is filtered
	// A byte in wake makes the filter take a channel from away, and read nothing until that is closed. done is closed at the end.
	wake, woken *os.File
	away        chan chan struct{}
	done        chan struct{}
}

const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// newPasteFilter replaces standard input with its output, if standard input is a terminal that supports bracketed paste.
func newPasteFilter() (*pasteFilter, error) {
	f := &pasteFilter{stdin: os.Stdin, terminal: term.IsTerminal(int(os.Stdin.Fd()))}
	if name := os.Getenv("TERM"); !f.terminal || !filters || name == "" || name == "dumb" {
		return f, nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if f.woken, f.wake, err = os.Pipe(); err != nil {
		return nil, err
	}
	f.away, f.done = make(chan chan struct{}), make(chan struct{})
	os.Stdin, f.out = in, out // liner reads os.Stdin, and finds its terminal at descriptor 0
	go f.copy()
	return f, nil
}

// without runs do while the filter leaves the terminal's input alone.
func (f *pasteFilter) without(do func()) {
	if f.out == nil {
		do()
		return
	}
	back := make(chan struct{})
	defer close(back)
	if _, err := f.wake.Write([]byte{0}); err == nil {
		select {
		case f.away <- back:
		case <-f.done:
		}
	}
	do()
}

// begin makes the terminal mark pastes while a line is edited. end stops that before a program runs.
func (f *pasteFilter) begin() { f.send(pasteOn) }
func (f *pasteFilter) end()   { f.send(pasteOff) }

func (f *pasteFilter) send(what string) {
	if f.out != nil {
		fmt.Fprint(os.Stdout, what)
	}
}

// close restores standard input.
func (f *pasteFilter) close() {
	if f.out != nil {
		os.Stdin = f.stdin
	}
}

// copy filters until the input ends.
func (f *pasteFilter) copy() {
	defer close(f.done)
	defer f.out.Close()
	var in splitter
	buf := make([]byte, 4096)
	for {
		if waitInput(f.stdin, f.woken) {
			_, _ = f.woken.Read(buf[:1])
			<-<-f.away
			continue
		}
		n, err := f.stdin.Read(buf)
		if _, e := f.out.Write(in.filter(buf[:n])); e != nil {
			return
		}
		if err != nil && !errors.Is(err, fs.ErrClosed) && err != io.EOF {
			continue // a signal
		} else if err != nil {
			return
		}
	}
}

// splitter distinguishes pasted from typed text.
type splitter struct {
	held   []byte // may be the start of a mark
	pasted []byte
	inside bool
}

// filter returns what to pass on for the next piece of input.
func (s *splitter) filter(piece []byte) []byte {
	var out []byte
	data := append(s.held, piece...)
	s.held = nil
	for len(data) > 0 {
		mark := pasteBegin
		if s.inside {
			mark = pasteEnd
		}
		at := bytes.Index(data, []byte(mark))
		before := data
		if at >= 0 {
			before = data[:at]
		} else if s.inside {
			before = data[:len(data)-overlap(data, mark)]
		}
		if s.inside {
			s.pasted = append(s.pasted, before...)
		} else {
			out = append(out, unindented(before)...)
		}
		if at < 0 {
			// Typed text is passed on at once: a delayed escape would no longer be a key.
			s.held = append(s.held, data[len(before):]...)
			return out
		}
		data = data[at+len(mark):]
		if s.inside {
			out = append(out, oneLine(s.pasted)...)
			s.pasted = nil
		}
		s.inside = !s.inside
	}
	return out
}

// unindented removes tabs that arrive at once with the end of the line before: a terminal without marks pastes them. Each would start
// completion.
func unindented(typed []byte) []byte {
	return indentation.ReplaceAll(typed, []byte("$1"))
}

var indentation = regexp.MustCompile(`([\r\n])\t+`)

// overlap returns how many bytes at the end of data may begin the mark.
func overlap(data []byte, mark string) int {
	for n := min(len(data), len(mark)-1); n > 0; n-- {
		if string(data[len(data)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}

// oneLine makes one line of pasted text.
func oneLine(pasted []byte) string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(pasted))
	text = strings.TrimRight(text, "\n")
	text = strings.NewReplacer("\n", newline, "\t", "    ").Replace(text)
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return -1 // a control character would act as a key
		}
		return r
	}, text)
}

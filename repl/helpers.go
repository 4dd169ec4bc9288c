package repl

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/peterh/liner"
	"golang.org/x/term"
)

// This file runs the user's pager and editor, which have the terminal for themselves meanwhile.

// show prints what write writes. What does not fit in the terminal goes to the pager.
func (l *loop) show(write func(to io.Writer)) error {
	var text bytes.Buffer
	write(&text)
	if pager := l.pager(); pager != "" && bytes.Count(text.Bytes(), []byte("\n")) >= l.height() {
		return l.helper(pager, &text)
	}
	_, err := l.Out.Write(text.Bytes())
	return err
}

// height returns how many lines the terminal has.
func (l *loop) height() int {
	_, lines, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 1 << 30 // no terminal: everything fits
	}
	return lines
}

// pager returns the command of the pager, or "" if there is none, or nobody to use it.
func (l *loop) pager() string {
	if l.line == nil || l.paste.out == nil {
		return ""
	}
	if pager, ok := os.LookupEnv("PAGER"); ok {
		return pager
	}
	if _, err := exec.LookPath("less"); err == nil {
		return "less"
	}
	return ""
}

// edit lets the user change the last program in an editor, and runs it.
func (l *loop) edit(string) error {
	if l.line == nil {
		return errors.New("an editor needs a terminal")
	}
	f, err := os.CreateTemp("", "*.trace")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(l.last + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	if err := l.helper(editor, l.paste.stdin, f.Name()); err != nil {
		return fmt.Errorf("%w; VISUAL or EDITOR in the environment chooses another editor", err)
	}
	edited, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	text := strings.TrimRight(string(edited), "\n")
	if text == "" || text == l.last {
		return errors.New("the program is as it was: nothing runs")
	}
	fmt.Fprintln(l.Out, text)
	l.add(text)
	return nil
}

// helper runs a command of the shell, as git and man run pagers and editors.
func (l *loop) helper(command string, in io.Reader, args ...string) error {
	cmd := exec.Command("sh", append([]string{"-c", command + ` "$@"`, command}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, os.Stdout, os.Stderr
	if _, ok := os.LookupEnv("LESS"); !ok {
		cmd.Env = append(os.Environ(), "LESS=FRX")
	}
	edited, err := liner.TerminalMode()
	if err != nil {
		return err
	}
	defer edited.ApplyMode()
	if err := l.mode.ApplyMode(); err != nil {
		return err
	}
	l.paste.without(func() { err = cmd.Run() })
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

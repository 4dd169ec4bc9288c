package repl

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// history is what was typed, in this session and in earlier ones. A text of several lines is one of its lines.
type history struct {
	file  string // "" if there is none
	lines []string
}

// historyFile returns the file in the folder for the user's state (XDG base directory specification), or "" if there is none.
func historyFile() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "trace", "history")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "trace", "history")
}

// load reads the lines of earlier sessions. A missing file is not an error.
func (h *history) load() {
	if h.file == "" {
		return
	}
	f, err := os.Open(h.file)
	if err != nil {
		return
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		h.lines = append(h.lines, in.Text())
	}
}

// remember keeps a text. After an error no later one is written.
func (h *history) remember(text string) error {
	h.lines = append(h.lines, asLine(text))
	if h.file == "" {
		return nil
	}
	err := appendLine(h.file, asLine(text))
	if err != nil {
		h.file = ""
	}
	return err
}

// appendLine appends to a file that only its owner may read.
func appendLine(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	return errors.Join(err, f.Close())
}

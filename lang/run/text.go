package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"trace/scripts"
)

// ErrNoScript means that a text names a script that is not there.
var ErrNoScript = errors.New("no script")

// InlineName is the name in errors of a program that is in no file.
const InlineName = "program"

// TextNamed returns the script called name, or the program that it is, as the name for errors and its text. A script that comes with trace has a
// bare name, and precedes files. A user's script is the name of a file, with a slash or .trace at its end.
func TextNamed(name string) (as, text string, err error) {
	if bundled, ok := scripts.Find(name); ok {
		return bundled.Name, bundled.Text, nil
	}
	isPath := slices.ContainsFunc([]string{"/", "./", "../"}, func(p string) bool { return strings.HasPrefix(name, p) })
	if !isPath && (strings.ContainsAny(name, " \t\n{") || !strings.Contains(name, "/") && !strings.HasSuffix(name, ".trace")) {
		return InlineName, name, nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.IsDir():
		if text, err = ReadFile(name); err != nil {
			return "", "", fmt.Errorf("script: %w", err)
		}
		return name, text, nil
	case !isPath && !strings.HasSuffix(name, ".trace"):
		return InlineName, name, nil // a slash is also a division
	case err == nil:
		return "", "", fmt.Errorf("%w %s: it is a directory", ErrNoScript, name)
	}
	return "", "", fmt.Errorf("%w %s: %w", ErrNoScript, name, errors.Unwrap(err))
}

// ReadFile reads the program in a file.
func ReadFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := ReadProgram(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// maxProgram bounds the text of a program, which may be an endless file.
const maxProgram = 1 << 20

// ReadProgram reads a program of at most a MiB.
func ReadProgram(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxProgram+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxProgram:
		return "", fmt.Errorf("a program of more than %s", FormatBytes(maxProgram))
	}
	return string(text), nil
}

// Package scripts holds the programs that come with trace, one file each. They are run by their names, and are the best examples of the
// language: no Go code is special to one of them.
//
// A script begins with a comment whose first line is its name and what it is for, "# nvme_trace: a line for …"; what follows, with an
// example of its output, is its help.
package scripts

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.trace
var files embed.FS

// Script is a program that comes with trace.
type Script struct {
	// Name is the file's name without .trace, and runs the script.
	Name string
	// Summary is its purpose, in one line.
	Summary string
	// Text of the program.
	Text string
}

// All returns the scripts in order of their names.
func All() []Script {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are in the binary
	}
	var all []Script
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		s := Script{Name: strings.TrimSuffix(e.Name(), ".trace"), Text: string(text)}
		first, _, _ := strings.Cut(s.Text, "\n")
		s.Summary = strings.TrimPrefix(first, fmt.Sprintf("# %s: ", s.Name))
		all = append(all, s)
	}
	return all
}

// Find returns the script with a name, in which - may replace _ as in the names of most commands.
func Find(name string) (Script, bool) {
	for _, s := range All() {
		if s.Name == strings.ReplaceAll(name, "-", "_") {
			return s, true
		}
	}
	return Script{}, false
}

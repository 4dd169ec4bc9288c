// Package docs holds the documents of the manual. trace help prints them, and the manual page is made of them.
package docs

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.md
var files embed.FS

// Topic is a document of the manual.
type Topic struct {
	Name  string // of the file, without .md: what trace help takes
	Title string // its first heading
	Text  string // Markdown, with the first heading
}

// names are the topics in the order of the manual.
var names = []string{
	"tutorial", "language", "functions", "from-bpftrace", "from-x-monitor", "probes", "verbs", "scripts", "output", "exploring", "recordings", "troubleshooting",
	"lost-events", "cost", "privileges", "containers", "cgroups", "kernels", "library", "metrics", "service", "architecture",
}

// Topics returns all documents, in the order of the manual.
func Topics() []Topic {
	var topics []Topic
	for _, name := range names {
		text, err := files.ReadFile(name + ".md")
		if err != nil {
			panic(err) // it was embedded
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		topics = append(topics, Topic{Name: name, Title: title, Text: string(text)})
	}
	return topics
}

// Names returns the names of all topics.
func Names() []string { return names }

// Find returns the topic of that name.
func Find(name string) (Topic, error) {
	for _, t := range Topics() {
		if t.Name == name {
			return t, nil
		}
	}
	return Topic{}, fmt.Errorf("no topic %q: %s", name, strings.Join(names, ", "))
}

// Mention is a line of a document that holds a word.
type Mention struct {
	Topic   Topic
	Section string // the nearest heading above
	Line    string // without marks of a table
}

// Mentions returns the lines of prose and tables, in all documents, that hold the words. Letters of either case are the same.
func Mentions(words string) []Mention {
	var found []Mention
	for _, t := range Topics() {
		section, fenced := t.Title, false
		for line := range strings.Lines(t.Text) {
			line = strings.TrimSpace(line)
			switch heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); {
			case strings.HasPrefix(line, "```"):
				fenced = !fenced
			case fenced:
				continue
			case isHeading && strings.HasPrefix(line, "#"):
				section = heading
			}
			if strings.Contains(strings.ToLower(line), strings.ToLower(words)) {
				found = append(found, Mention{t, section, strings.Trim(line, "|#- ")})
			}
		}
	}
	return found
}

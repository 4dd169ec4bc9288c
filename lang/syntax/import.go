package syntax

import (
	"fmt"
	"slices"
)

// Source is a file that a program imports.
type Source struct{ Name, Content string }

// Import adds to the program what the files have that it imports, and the files that these import, each once. What a file has comes
// before what the importing one has. read returns the files that the file from means by path. The error is an [ErrorList].
func (p *Program) Import(read func(from, path string) ([]Source, error)) error {
	i := &importer{read: read, text: p.Text, words: p.words, seen: map[string]bool{}}
	merged := i.merge(p, p.Text.Name)
	if err := i.errs.Err(); err != nil {
		return err
	}
	*p = *merged
	p.Text, p.Imports = i.text, nil
	return nil
}

type importer struct {
	read  func(from, path string) ([]Source, error)
	text  Text // of all files
	words int  // of all files
	seen  map[string]bool
	errs  ErrorList
}

// maxImports bounds the text of a program with the files that it imports.
const maxImports = 4 << 20

func (i *importer) fail(at Span, msg, help string) {
	i.errs = append(i.errs, i.text.Error(at, msg, help))
}

// merge returns the program with the files that it imports.
func (i *importer) merge(p *Program, name string) *Program {
	out := *p
	out.Macros, out.Params, out.Lets, out.Clauses = nil, nil, nil, nil
	for _, one := range p.Imports {
		sources, err := i.read(name, one.Path)
		if err != nil {
			i.fail(one.Span, fmt.Sprintf("import %q: %v", one.Path, err), "")
		}
		for _, s := range sources {
			if i.seen[s.Name] {
				continue
			}
			i.seen[s.Name] = true
			if len(i.text.Content)+len(s.Content) > maxImports {
				i.fail(one.Span, fmt.Sprintf("the program and the files that it imports have more than %d bytes", maxImports), "")
				return &out
			}
			out.add(i.file(s, one))
		}
	}
	out.add(p)
	return &out
}

// file parses a file and what it imports.
func (i *importer) file(s Source, by *Import) *Program {
	from := len(i.text.Content) + 1
	i.text.Content += "\n" + s.Content
	i.text.imported = append(slices.Clip(i.text.imported), imported{s.Name, from})
	p, err := parse(i.text, from, i.words)
	if i.words = p.words; err != nil {
		i.errs = append(i.errs, err.(ErrorList)...)
		return p
	}
	switch {
	case p.Expr != nil:
		i.fail(by.Span, fmt.Sprintf("%s is a bare expression", s.Name), "name its probes: an imported file has clauses, macros, params and maps")
	case p.Configured != (Span{}):
		i.fail(p.Configured, "an imported file has no settings", "move them to the program that imports it")
	}
	return i.merge(p, s.Name)
}

func (p *Program) add(other *Program) {
	p.Macros, p.Params = append(p.Macros, other.Macros...), append(p.Params, other.Params...)
	p.Lets, p.Clauses = append(p.Lets, other.Lets...), append(p.Clauses, other.Clauses...)
}

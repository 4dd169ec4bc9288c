package lang

import (
	_ "embed"
	"go/parser"
	"go/token"
	"strings"
)

//go:embed doc.go
var docSource string

// Manual is the description of the language in the syntax of [go/doc/comment]: the documentation of this package, without what is said
// about the package itself.
func Manual() string {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", docSource, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		panic(err) // it was compiled
	}
	_, text, _ := strings.Cut(file.Doc.Text(), "\n# ")
	text, _, _ = strings.Cut("# "+text, "\n# How it works")
	return text
}

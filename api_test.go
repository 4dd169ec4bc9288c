package trace_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trace"
)

var apiUpdate = flag.Bool("api.update", false, "write the exported names anew")

// declarations returns the exported declarations of the package, by file.
func declarations(t *testing.T) (*token.FileSet, []ast.Decl) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var all []ast.Decl
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			if f, method := d.(*ast.FuncDecl); !method || f.Recv == nil || ast.IsExported(receiver(f)) {
				all = append(all, d)
			}
		}
	}
	return fset, all
}

// receiver returns the type of a method's receiver.
func receiver(f *ast.FuncDecl) (name string) {
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, is := n.(*ast.Ident); is && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// testdata/api.txt has the exported names: a change of one is seen.
func TestAPI(t *testing.T) {
	fset, all := declarations(t)
	var texts []string
	for _, d := range all {
		switch d := d.(type) {
		case *ast.FuncDecl:
			d.Doc, d.Body = nil, nil
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			d.Doc = nil
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				n.Doc, n.Comment = nil, nil
			case *ast.ValueSpec:
				n.Doc, n.Comment = nil, nil
			}
			return true
		})
		var text bytes.Buffer
		if err := printer.Fprint(&text, fset, d); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, regexp.MustCompile(`\n\n+`).ReplaceAllString(text.String(), "\n")+"\n")
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[trace.Error]()) { // of another package
		texts = append(texts, "type Error struct, "+f.Name+" "+f.Type.String()+"\n")
	}
	slices.Sort(texts)
	got := strings.Join(texts, "")
	if *apiUpdate {
		if err := os.WriteFile("testdata/api.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the exported names have changed: go test . -run TestAPI -api.update, and docs/library.md has what is promised\n%s", got)
	}
}

// Each exported name has a comment, and each function, method and error stands in an example.
func TestDocumented(t *testing.T) {
	var examples []byte
	for _, name := range []string{"example_test.go", "flows_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples = append(examples, text...)
	}
	_, all := declarations(t)
	check := func(name string, doc *ast.CommentGroup, isType bool) {
		if doc.Text() == "" {
			t.Errorf("%s has no comment", name)
		}
		if !isType && !regexp.MustCompile(`\.`+name+`\b|Example\w*`+name+`\b`).Match(examples) {
			t.Errorf("%s is in no example", name)
		}
	}
	for _, d := range all {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name != "String" {
				check(d.Name.Name, d.Doc, false)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					check(s.Name.Name, d.Doc, true)
				case *ast.ValueSpec:
					check(s.Names[0].Name, s.Doc, false)
				}
			}
		}
	}
}

//go:build !vm

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file holds the walls inside of packages: how many files may be a circle, and how long one may be.

// mostLines is how many lines a file of the product may have.
const mostLines = 500

// mostInCircle is how many files of a package may need each other. An edge is there wherever a file uses a function, method, type, field,
// constant or variable that another file of its package declares.
const mostInCircle = 9

// largerCircles are the limits of packages that may be larger: a code generator and a checker of types are mutually recursive.
var largerCircles = map[string]int{
	"trace/lang/codegen": 10, "trace/lang/check": 11,
	"trace/cmd/vmtest": -1, "trace/cmd/bench": -1, // tools
}

func TestFilesAreShort(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if n := bytes.Count(text, []byte("\n")); n > mostLines {
			t.Errorf("%s has %d lines, more than %d", name, n, mostLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The command is flags, subcommands, help and exit status. Whatever else it begins to have belongs to a package of its own.
func TestCommandIsSmall(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if lines > 2500 {
		t.Errorf("cmd/trace has %d lines, it may have 2500", lines)
	}
}

// Which aggregation it is, only the aggregations themselves and the generator of their code know.
func TestNobodyAsksForAggregations(t *testing.T) {
	asked := regexp.MustCompile(`\bagg\.(Count|Sum|Avg|Min|Max|Stats|Hist|LHist|Quantile|Rate|Gauge|TopK|New\w+)\b`)
	compared := regexp.MustCompile(`(==|!=|case) "(count|sum|avg|min|max|stats|hist|lhist|quantile|rate|gauge|topk)"`)
	for _, folder := range []string{"lang", "lang/check", "lang/exec", "lang/ir", "lang/plan", "lang/format", "lang/output", "lang/result", "lang/run", "lang/run/console", "repl", "cmd/trace"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range slices.Concat(asked.FindAll(text, -1), compared.FindAll(text, -1)) {
				t.Errorf("%s asks for an aggregation: %s", f, found)
			}
		}
	}
}

// What a format is, only its own file and its row in the list of formats know.
func TestNobodyAsksForFormats(t *testing.T) {
	asked := regexp.MustCompile(`(==|!=|\bcase) (output\.)?(Text|JSON|CSV|Folded|Pprof|HTML)\b`)
	for _, folder := range []string{"lang", "lang/check", "lang/exec", "lang/ir", "lang/output", "lang/plan", "lang/run", "lang/run/console", "repl"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if found := asked.Find(text); found != nil && !strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s asks for a format: %s", f, found)
			}
		}
	}
}

// checkedPackage is what go list reports of a package and its export data.
type checkedPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

func TestCirclesAreSmall(t *testing.T) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := make(map[string]string)
	var packages []checkedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p checkedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if ours(p.ImportPath) {
			packages = append(packages, p)
		}
	}
	for _, p := range packages {
		most, named := largerCircles[p.ImportPath]
		if !named {
			most = mostInCircle
		}
		circle := largestCircle(usesOfFiles(t, p, exports))
		if most >= 0 && len(circle) > most {
			t.Errorf("%s: %d files are a circle, more than %d: %s", p.ImportPath, len(circle), most, strings.Join(circle, " "))
		}
		if named && most > mostInCircle && len(circle) <= mostInCircle {
			t.Errorf("%s: the largest circle has %d files now: it is no longer an exception", p.ImportPath, len(circle))
		}
	}
}

// usesOfFiles returns which files of a package each of its files needs.
func usesOfFiles(t *testing.T, p checkedPackage, exports map[string]string) map[string]map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	uses := make(map[string]map[string]bool)
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		uses[name] = make(map[string]bool)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	imported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	conf := types.Config{Importer: imported}
	checked, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	for id, o := range info.Uses {
		if o.Pkg() != checked || !declaredByFile(checked, o) {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		if from != to {
			uses[from][to] = true
		}
	}
	return uses
}

// declaredByFile reports whether an object is one of the package, a field or a method, and not one inside of a function.
func declaredByFile(p *types.Package, o types.Object) bool {
	switch o := o.(type) {
	case *types.Var:
		return o.IsField() || o.Parent() == p.Scope()
	case *types.Func:
		return true
	}
	return o.Parent() == p.Scope()
}

// largestCircle returns the largest strongly connected component (Tarjan, Depth-first search and linear graph algorithms, 1972).
func largestCircle(uses map[string]map[string]bool) (largest []string) {
	index, low := make(map[string]int), make(map[string]int)
	var stack []string
	var visit func(v string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack = append(stack, v)
		for w := range uses[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if slices.Contains(stack, w) {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		at := slices.Index(stack, v)
		circle := slices.Sorted(slices.Values(stack[at:]))
		stack = stack[:at]
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	for v := range uses {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}

//go:build !vm

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are our packages and the packages of ours that each may import: cmd/trace -> lang/run -> lang -> lang/exec -> lang/plan -> probes
// -> bpf. The library trace is beside cmd/trace.
var layers = map[string][]string{
	"trace":                      {"trace/lang/exec", "trace/lang/format", "trace/lang/ir", "trace/lang/metrics/family", "trace/lang/output", "trace/lang/result", "trace/lang/run", "trace/lang/run/console", "trace/lang/syntax", "trace/probes", "trace/probes/event", "trace/probes/kernel", "trace/probes/symbols"},
	"trace/cmd/bench":            nil,
	"trace/cmd/trace":            {"trace/docs", "trace/lang", "trace/lang/check", "trace/lang/exec", "trace/lang/ir", "trace/lang/output", "trace/lang/run", "trace/lang/run/console", "trace/lang/serve", "trace/lang/syntax", "trace/probes", "trace/probes/elf", "trace/probes/event", "trace/probes/kernel", "trace/probes/recording", "trace/repl", "trace/scripts", "trace/lang/words"},
	"trace/cmd/vmtest":           nil,
	"trace/docs":                 nil,
	"trace/lang":                 {"trace/lang/check", "trace/lang/exec", "trace/lang/ir", "trace/lang/plan", "trace/lang/syntax", "trace/probes/event"},
	"trace/lang/check":           {"trace/lang/agg", "trace/lang/format", "trace/lang/ir", "trace/lang/syntax", "trace/probes/event"},
	"trace/lang/exec":            {"trace/lang/codegen", "trace/lang/format", "trace/lang/ir", "trace/lang/plan", "trace/lang/result", "trace/probes/event", "trace/probes/proc", "trace/probes/symbols"},
	"trace/lang/ir":              {"trace/lang/agg", "trace/lang/format", "trace/lang/result", "trace/lang/syntax", "trace/probes/event"},
	"trace/lang/langtest":        {"trace/probes/event"},
	"trace/lang/plan":            {"trace/lang/codegen", "trace/lang/format", "trace/lang/ir", "trace/lang/syntax", "trace/probes", "trace/probes/event"},
	"trace/lang/agg":             {"trace/lang/result", "trace/probes/event"},
	"trace/lang/codegen":         {"trace/lang/agg", "trace/probes/event"},
	"trace/lang/codegen/bpftest": {"trace/lang/agg", "trace/lang/codegen"},
	"trace/lang/format":          {"trace/lang/syntax", "trace/probes/event"},
	"trace/lang/metrics":         {"trace/lang/metrics/family"},
	"trace/lang/metrics/family":  {"trace/lang/format", "trace/lang/result", "trace/probes/event"},
	"trace/lang/output":          {"trace/lang/format", "trace/lang/result", "trace/lang/syntax", "trace/probes/event"},
	"trace/lang/result":          {"trace/lang/format", "trace/probes/event"},
	"trace/lang/run":             {"trace/lang", "trace/lang/check", "trace/lang/exec", "trace/lang/ir", "trace/lang/plan", "trace/lang/output", "trace/lang/syntax", "trace/probes", "trace/probes/event", "trace/probes/kernel", "trace/probes/proc", "trace/probes/recording", "trace/probes/symbols", "trace/probes/verbs", "trace/scripts"},
	"trace/lang/run/console":     {"trace/lang/exec", "trace/lang/ir", "trace/lang/output", "trace/lang/result", "trace/lang/run", "trace/lang/syntax", "trace/probes/recording"},
	"trace/cmd/trace-web":        {"trace/lang/metrics", "trace/lang/metrics/family", "trace/lang/serve/wire"},
	"trace/lang/serve":           {"trace", "trace/lang/format", "trace/lang/metrics/family", "trace/lang/output", "trace/lang/result", "trace/lang/serve/config", "trace/lang/serve/wire", "trace/lang/syntax", "trace/scripts"},
	"trace/lang/serve/config":    {"trace/lang/syntax"},
	"trace/lang/serve/wire":      nil,
	"trace/lang/syntax":          nil,
	"trace/probes":               {"trace/bpf", "trace/probes/counter", "trace/probes/event", "trace/probes/kernel", "trace/probes/proc", "trace/probes/rewrite", "trace/probes/verbs"},
	"trace/probes/counter":       {"trace/probes/proc"},
	"trace/probes/elf":           nil,
	"trace/probes/event":         nil,
	"trace/probes/filetest":      nil,
	"trace/probes/kernel":        {"trace/probes/event", "trace/probes/workload"},
	"trace/probes/recording":     {"trace/probes/event", "trace/probes/workload"},
	"trace/probes/rewrite":       nil,
	"trace/probes/proc":          nil,
	"trace/probes/verbs":         {"trace/probes/proc"},
	"trace/repl":                 {"trace/lang/check", "trace/lang/output", "trace/lang/syntax", "trace/probes", "trace/probes/event"},
	"trace/probes/symbols":       {"trace/probes/kernel", "trace/probes/proc"},
	"trace/probes/workload":      {"trace/probes/event", "trace/probes/proc"},
	"trace/bpf":                  nil,
	"trace/scripts":              nil,
	"trace/lang/words":           {"trace/docs", "trace/lang/check", "trace/lang/syntax", "trace/probes", "trace/probes/event", "trace/scripts"},
}

// testSupport is what only tests may import besides.
var testSupport = map[string][]string{
	"trace/lang":                {"trace/probes", "trace/scripts"},
	"trace/cmd/trace-web":       {"trace", "trace/lang/codegen/bpftest", "trace/lang/result", "trace/lang/serve", "trace/lang/serve/config", "trace/probes/event"},
	"trace/lang/serve":          {"trace/lang/codegen/bpftest", "trace/probes/kernel"},
	"trace/lang/check":          {"trace/lang/langtest"},
	"trace/lang/exec":           {"trace/lang/agg", "trace/lang/check", "trace/lang/codegen/bpftest", "trace/lang/langtest", "trace/lang/output", "trace/lang/syntax", "trace/probes", "trace/probes/filetest"},
	"trace/lang/format":         {"trace/lang/langtest"},
	"trace/lang/codegen":        {"trace/lang/codegen/bpftest"},
	"trace/probes":              {"trace/lang", "trace/lang/check", "trace/lang/codegen/bpftest", "trace/lang/exec", "trace/lang/output", "trace/lang/plan", "trace/probes/filetest"},
	"trace/probes/kernel":       {"trace/bpf", "trace/probes/filetest"},
	"trace/probes/symbols":      {"trace/probes/filetest"},
	"trace/probes/proc":         {"trace/probes/filetest"},
	"trace/probes/verbs":        {"trace/probes/filetest"},
	"trace/probes/workload":     {"trace/probes/filetest"},
	"trace/probes/recording":    {"trace/probes"},
	"trace/cmd/trace":           {"trace/lang/codegen", "trace/lang/metrics/family", "trace/lang/plan", "trace/probes/kernel"},
	"trace/lang/metrics":        {"trace", "trace/lang/agg", "trace/lang/result", "trace/probes/event"},
	"trace/lang/metrics/family": {"trace/lang/agg"},
	"trace/lang/output":         {"trace/lang/agg"},
	"trace/lang/result":         {"trace/lang/agg"},
	"trace/lang/run":            {"trace/lang/result"},
}

// listed is what go list reports a package.
type listed struct {
	ImportPath                         string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	CgoFiles                           []string
}

func TestLayers(t *testing.T) {
	found := make(map[string]bool)
	for _, p := range listPackages(t) {
		if !ours(p.ImportPath) {
			if len(p.CgoFiles) > 0 && !p.Standard {
				t.Errorf("%s uses cgo", p.ImportPath)
			}
			continue
		}
		found[p.ImportPath] = true
		allowed, known := layers[p.ImportPath]
		if !known {
			t.Errorf("%s is no package of the layers: add it with what it may import", p.ImportPath)
		}
		check := func(imports, allowed []string) {
			for _, imported := range imports {
				if ours(imported) && !slices.Contains(allowed, imported) {
					t.Errorf("%s imports %s", p.ImportPath, imported)
				}
			}
		}
		check(p.Imports, allowed)
		// A test outside its package imports it.
		check(slices.Concat(p.TestImports, p.XTestImports), slices.Concat(allowed, testSupport[p.ImportPath], []string{p.ImportPath}))
	}
	for _, p := range []string{"trace/cmd/trace", "trace/lang", "trace/lang/syntax", "trace/probes", "trace/bpf"} {
		if !found[p] {
			t.Errorf("go list does not know %s", p)
		}
	}
}

// notLinked are packages that a command must not contain: the binary would be larger, and start later.
var notLinked = map[string][]string{
	"trace":           {"net/http", "crypto/tls", "github.com/prometheus/client_golang/prometheus"},
	"trace/cmd/trace": {"net/http", "crypto/tls", "github.com/prometheus/client_golang/prometheus", "google.golang.org/protobuf/proto"},
}

func TestNotLinked(t *testing.T) {
	for command, unwanted := range notLinked {
		cmd := exec.Command("go", "list", "-deps", command)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for linked := range strings.FieldsSeq(string(out)) {
			if slices.Contains(unwanted, linked) {
				t.Errorf("%s links %s", command, linked)
			}
		}
	}
}

// ours distinguishes our packages from the standard library's, among them runtime/trace, and from others.
func ours(path string) bool { return path == "trace" || strings.HasPrefix(path, "trace/") }

// listPackages returns our packages, tests included, and all that they need.
func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,CgoFiles", "./...")
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(out); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return all
}

package probes

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"trace/probes/kernel"
)

// What README has users compile for modules without BTF declares each type of a module that the probes read.
func TestReadmeNamesTypes(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, declared := range regexp.MustCompile(`(?m)^struct (\w+) \*\w+;$`).FindAllSubmatch(readme, -1) {
		told = append(told, string(declared[1]))
	}
	slices.Sort(told)
	if read := moduleTypes(t); !slices.Equal(told, read) {
		t.Errorf("README.md declares\n%s\nthe probes read\n%s", strings.Join(told, " "), strings.Join(read, " "))
	}
}

// moduleTypes returns the structs that the objects read and that belong to modules, in order of their names.
func moduleTypes(t *testing.T) []string {
	t.Helper()
	catalog, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range catalog.probes {
		src := catalog.source(p)
		module := src.object.moduleOf(src.hook)
		types, err := src.object.describe()
		if err != nil {
			t.Fatal(err)
		}
		for _, view := range kernel.Views(types, false) {
			name, _, _ := strings.Cut(view.TypeName(), "___")
			_, isStruct := view.(*btf.Struct)
			if isStruct && !src.object.events[name] && module.Owns(name) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found
}

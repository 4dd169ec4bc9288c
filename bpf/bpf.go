// Package bpf embeds the compiled probes: one object for each group of probes and each architecture. `make generate` compiles the C files
// beside it; README.md shows how to add a probe.
package bpf

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Objects returns the names of the embedded objects, sorted.
func Objects() []string {
	entries, err := objects.ReadDir(runtime.GOARCH)
	if err != nil {
		panic("bpf: embedded folder is missing: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".bpf.o"))
	}
	return names
}

// Types returns the types in an embedded object: structs of events, and programs as functions. It is much cheaper than Load.
func Types(object string) (*btf.Spec, error) {
	data, err := open(object)
	if err != nil {
		return nil, err
	}
	types, err := typesIn(data)
	if err != nil {
		return nil, fmt.Errorf("types of embedded object %s: %w", object, err)
	}
	return types, nil
}

// typesIn reads only the section with the types. ebpf.LoadCollectionSpecFromReader also reads the symbols, which takes longer.
func typesIn(object io.ReaderAt) (*btf.Spec, error) {
	file, err := elf.NewFile(object)
	if err != nil {
		return nil, err
	}
	section := file.Section(".BTF")
	if section == nil {
		return nil, errors.New("no section .BTF")
	}
	return btf.LoadSplitSpecFromReader(section, nil)
}

// Load parses an embedded object. The caller owns the result and may change it.
func Load(object string) (*ebpf.CollectionSpec, error) {
	data, err := open(object)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(data)
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", object, err)
	}
	return spec, nil
}

// open opens an object without copying it, unlike ReadFile: most of it is never read.
func open(object string) (io.ReaderAt, error) {
	file, err := objects.Open(runtime.GOARCH + "/" + object + ".bpf.o")
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", object, err)
	}
	return file.(io.ReaderAt), nil // files of an embed.FS implement it (embed.FS.Open)
}

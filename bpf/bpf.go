// Package bpf holds the compiled probes: one object for each group of probes and each architecture. The C sources beside it are
// compiled by `make generate`; README.md shows how to add a probe.
package bpf

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
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

// Load parses an embedded object. The result is the caller's own.
func Load(object string) (*ebpf.CollectionSpec, error) {
	data, err := objects.ReadFile(runtime.GOARCH + "/" + object + ".bpf.o")
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", object, err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("embedded object %s: %w", object, err)
	}
	return spec, nil
}

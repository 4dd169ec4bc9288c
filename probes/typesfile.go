//go:build linux

package probes

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"trace/probes/kernel"
)

// WriteTypes writes a C file that has a pointer to each struct of a module that the probes read. Compiled as a kernel module, it describes these
// types to hosts whose modules have no BTF (docs/kernels.md).
func (c *Catalog) WriteTypes(out io.Writer) error {
	structs, headers, err := c.moduleStructs()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("#include <linux/module.h>\n")
	for _, own := range []bool{false, true} { // the kernel's sources include what their own headers need before these
		for _, h := range headers {
			if strings.HasPrefix(h, `"`) == own {
				fmt.Fprintf(&b, "#include %s\n", h)
			}
		}
	}
	b.WriteString("\n/* One that the kernel does not have does no harm. */\n")
	for _, name := range structs {
		fmt.Fprintf(&b, "struct %s *%[1]s_;\n", name)
	}
	b.WriteString("\nMODULE_LICENSE(\"GPL\");\n")
	_, err = io.WriteString(out, b.String())
	return err
}

// moduleStructs returns the structs that the probes read and that belong to modules, and the headers that declare them, both in order.
func (c *Catalog) moduleStructs() (structs, headers []string, err error) {
	for _, p := range c.probes {
		from := c.origin(p)
		module := from.object.moduleOf(from.hook)
		views, err := from.object.kernelStructs(module)
		if err != nil {
			return nil, nil, err
		}
		for _, view := range views {
			structs = append(structs, kernel.NameOf(view))
			headers = append(headers, module.Headers...)
		}
	}
	return sorted(structs), sorted(headers), nil
}

// sorted returns each name once, in order.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

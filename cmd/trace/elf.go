package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"trace/lang/output"
	"trace/lang/run/console"
	"trace/probes/elf"
)

// elfCommand shows what an object of BPF programs has.
func elfCommand(s streams) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "elf FILE",
		Short: "show the sections, programs, maps, variables and types of an object of BPF programs",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			return show(s, o, "elf", func() (printer, error) { return elf.Open(args[0]) })
		},
	}
	addFormatFlag(c, &o)
	completeValues(c, "format", "text", "json")
	return c
}

// printer is what a command shows, also as JSON.
type printer interface{ Print(io.Writer) error }

// show writes what a command finds, as text or JSON.
func show(s streams, o options, command string, find func() (printer, error)) error {
	if f := o.format.Format; f != output.Text && f != output.JSON {
		return usagef("%s writes text or json, not %s", command, f)
	}
	found, err := find()
	if err != nil {
		return err
	}
	if o.format.Format == output.JSON {
		return json.NewEncoder(s.out).Encode(found)
	}
	return console.Text(s.out, found.Print)
}

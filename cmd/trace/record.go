package main

import (
	"github.com/spf13/cobra"

	"trace/lang/run"
	"trace/probes"
)

const recordLong = `record writes the events that PROGRAM selects, with all their fields, to a compressed file. Any program runs on
the file later, on any machine and without root:

  trace record -o nvme.rec 'nvme:*'
  trace -r nvme.rec 'nvme:complete_rq { @[opcode] = hist(latency) }'

--stacks records the stacks of each event, so that these programs may use kstack and ustack. The file is readable at any moment,
also after a crash or when the disk is full.`

// recordCommand writes the events that a program selects to a file.
func recordCommand(s streams) *cobra.Command {
	o := options{bufferSize: probes.DefaultRingBytes, recordsOnly: true}
	var maxSize run.FilesSize
	cmd := &cobra.Command{
		Use:     "record -o FILE [flags] PROGRAM",
		Short:   "record the events that a program selects in a file; trace -r FILE runs programs on it",
		Long:    recordLong,
		Example: "  trace record -o f 'nvme:*'                       until Ctrl-C\n  trace record -o f --max-size 1GiB 'ib:*, nvme:*'  the last of them, in a ring of files",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == "" {
				return usagef("record needs -o FILE")
			}
			src, err := recordText(cmd, s, args)
			if err != nil {
				return err
			}
			if err := checkOptions(cmd, o); err != nil {
				return err
			}
			return runRecord(cmd.Context(), s, o, src, int64(maxSize))
		},
		ValidArgsFunction: completeProbes,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.output, "output", "o", "", "the `FILE` to write")
	addForceFlag(cmd, &o)
	f.BoolVar(&o.stacks, "stacks", false, "also record kstack and ustack of each event")
	f.Uint32Var(&o.mapSize, "map-size", 0, "with --stacks: room for `N` different stacks (default: what fits 16 MiB)")
	f.Var(&maxSize, "max-size", "write FILE.1, FILE.2, … and keep the last `SIZE` of them")
	addRunFlags(cmd, &o)
	f.Lookup("burst").Hidden = true // it is refused, with the reason
	return cmd
}

// recordText returns the program that selects the events.
func recordText(cmd *cobra.Command, s streams, args []string) (programText, error) {
	if asked := len(args) == 1 && args[0] == "-"; asked || len(args) == 0 {
		src, err := stdinText(s.in, asked)
		switch {
		case err != nil:
			return programText{}, err
		case src != nil:
			return *src, nil
		}
	}
	return textOf(cmd, nil, args)
}

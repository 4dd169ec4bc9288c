package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trace/lang"
	"trace/lang/check"
	"trace/lang/output"
	"trace/lang/serve"
	"trace/probes"
)

const rootLong = `trace runs a small program on the RDMA and NVMe events of this machine: it filters, aggregates and prints them,
in the kernel as far as it can. It needs no compiler and no kernel headers.`

const rootExample = `  trace 'qp.state==RTR'                          the probes are inferred from the fields
  trace 'nvme:complete_rq / latency > 1ms /'     one probe, with a predicate
  trace 'nvme:complete_rq { @[ctrl, opcode] = hist(latency) }'
  trace nvme_latency --interval=5                a script that comes with trace: trace scripts lists them
  trace ./mine.trace --interval=5s               a script of yours, whose params are flags
  trace - <mine.trace                            a program from standard input
  trace -f json -n 100 'nvme:*'                  100 events as JSON, one object a line
  trace -c 'nvme id-ctrl /dev/nvme0' 'nvme:*'    while a command runs
  trace record -o nvme.rec 'nvme:*'              keep events in a file,
  trace -r nvme.rec 'nvme:* { @[probe] = count() }'     and run programs on it later, anywhere
  trace -l 'nvme:*'                              the probes; -lv shows their fields
  trace doctor                                   what this machine offers, and why not the rest`

// usageTemplate is cobra's, shortened, with the examples first and the topics of the help after the commands.
func usageTemplate() string {
	return `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

Topics of trace help:
` + topicLines() + `{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`
}

// rootCommand returns the command for a command line: a program next to a few subcommands.
func rootCommand(s streams, sc *script, args []string) *cobra.Command {
	o := options{args: args, bufferSize: probes.DefaultRingBytes}
	root := &cobra.Command{
		Use:           "trace [flags] PROGRAM|SCRIPT",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true, // exitStatus prints them
		SilenceUsage:  true,
		// Without this cobra takes every program for an unknown command.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRoot(cmd, s, o, sc, args)
		},
		ValidArgsFunction: completeProgram,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetUsageTemplate(usageTemplate())
	root.SetVersionTemplate("trace {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true // ours names its shells as an argument
	addFlags(root, &o)
	if sc != nil {
		sc.addFlags(root)
	}
	root.AddCommand(scriptsCommand(s), recordCommand(s), infoCommand(s), replCommand(s), doctorCommand(s), elfCommand(s), serve.Command(version()), completionCommand(s), manCommand(s), versionCommand(root))
	root.SetHelpCommand(helpCommand(s))
	return root
}

// runRoot does what the flags of a command line without a subcommand request.
func runRoot(cmd *cobra.Command, s streams, o options, sc *script, args []string) error {
	if answerForeign(cmd.Flags(), s) {
		return nil
	}
	if o.list {
		return runList(cmd, s, o, args)
	}
	if o.fmt != "" {
		return formatScript(s, o.fmt)
	}
	if sc == nil && cmd.Flags().NFlag() == 0 && len(args) == 0 {
		if isTerminal(s.in) && isTerminal(s.out) {
			return explore(cmd.Context(), s, nil)
		}
		fmt.Fprintf(s.err, "%s\n\n%s", cmd.Long, cmd.UsageString())
		return errHelpShown
	}
	src, err := textOf(cmd, sc, args)
	if err != nil {
		return err
	}
	if err := checkOptions(cmd, o); err != nil {
		return err
	}
	if !cmd.Flags().Changed("format") {
		o.format.Format = output.FormatOf(o.output)
	}
	if o.force && o.record == "" {
		return usagef("--force needs --record FILE")
	}
	if o.test || o.bench {
		return runTrials(cmd, s, o, src)
	}
	if len(o.recordings) > 0 {
		if err := refuse(cmd, "-r", liveFlags...); err != nil {
			return err
		}
		return runReplay(cmd.Context(), s, o, src)
	}
	return runProgram(cmd.Context(), s, o, src)
}

// textOf returns the program of the command line.
func textOf(cmd *cobra.Command, sc *script, args []string) (programText, error) {
	given := cmd.Flags().Changed("program")
	if sc != nil {
		sc.params, args = check.Flags(sc.declared, sc.params, args)
		if lang.TakesArguments(sc.name, sc.text) {
			if sc.arguments = args; !given {
				sc.arguments = args[min(len(args), 1):]
			}
			return sc.programText, nil
		}
	}
	switch {
	case given && len(args) > 0:
		return programText{}, usagef("two programs: one with -e, another as argument %q", args[0])
	case sc != nil && len(args) <= 1:
		return sc.programText, nil
	case len(args) == 0:
		return programText{}, usagef("no program; for example: trace 'qp.state==RTR'")
	case sc != nil && sc.name != inlineName:
		return programText{}, usagef("%s takes flags, but no argument %q (trace %[1]s --help)", args[0], args[1])
	case len(args) > 1 && instead(args[0]) != "":
		return programText{}, usagef("%s is not a command: %s", args[0], instead(args[0]))
	case len(args) > 1:
		return programText{}, usagef("the program must be one argument, not %d: quote it, like trace '%s'", len(args), strings.Join(args, " "))
	default:
		return programText{name: inlineName, text: args[0]}, nil
	}
}

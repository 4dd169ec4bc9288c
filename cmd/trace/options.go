package main

import (
	"math"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trace/lang/output"
	"trace/lang/run"
	"trace/probes"
)

// options are the flags of one command line.
type options struct {
	args                 []string // as typed
	program              string   // of -e
	list                 bool
	format               formatFlag
	fields               []string
	output               string
	command              commandFlag
	filter               run.Filter
	burst                run.Burst
	count                uint64
	timeout              run.Duration
	self                 bool
	strict               bool
	quiet                bool
	verbose              bool
	btf                  []string
	bufferSize           run.RingSize
	noKernel             bool
	compare              bool
	explain              bool
	debug                string
	mapSize              uint32
	fmt                  string
	record               string
	recordings           []string
	speed                float64
	live                 bool
	raw                  bool
	noWarnings, failures bool
	unsafe               bool
	dryRun               bool
	test                 bool
	bench                bool
	stacks               bool // of trace record
	force                bool
	// recorder is what the recording keeps, nil: nothing is recorded.
	recorder *run.Record
	// recordsOnly means that events are not printed: trace record.
	recordsOnly bool
}

// addFlags declares the flags, in the order in which the help shows them.
func addFlags(root *cobra.Command, o *options) {
	f := root.Flags()
	f.SortFlags = false
	f.StringVarP(&o.program, "program", "e", "", "run `PROGRAM` instead of the argument")
	f.BoolVarP(&o.list, "list", "l", false, "list the probes that match the argument (globs, a word or a script; default all); -lv: and their fields")
	f.StringVarP(&o.output, "output", "o", "", "write the data to `FILE` instead of standard output; its end, like .html, chooses the format without -f")
	f.StringVar(&o.record, "record", "", "also record the events that the program uses in `FILE`, like trace record")
	addForceFlag(root, o)
	f.StringSliceVarP(&o.recordings, "read", "r", nil, "read the events from recordings `FILE`[,FILE…], not from this machine")
	f.Float64Var(&o.speed, "speed", 0, "with -r: `N` times as fast as it was recorded; without it as fast as possible, with --live as it was")
	f.BoolVar(&o.live, "live", false, "show the maps in place, each second: tables, and heat maps of histograms over time")
	addRunFlags(root, o)
	f.StringSliceVar(&o.fields, "fields", nil, "print exactly the fields `NAME`[,NAME…] of events, in this order; time and probe are names, too")
	f.Uint32Var(&o.mapSize, "map-size", 0, "room for `N` keys in each map (default: 4096, or what fits 64 MiB)")
	f.BoolVar(&o.explain, "explain", false, "do not run: explain what runs in the kernel, what does not, and why")
	f.StringVarP(&o.debug, "debug", "d", "", "do not run: print a `STAGE` of the program: ast, plan or bpf")
	f.BoolVar(&o.noKernel, "no-kernel", false, "evaluate everything in user space, for comparison")
	f.BoolVar(&o.compare, "compare", false, "evaluate everything twice, in the kernel and in user space, and fail if the results differ")
	f.StringVar(&o.fmt, "fmt", "", "do not run: print the script `FILE` in canonical form")
	f.BoolVar(&o.unsafe, "unsafe", false, "allow the program to act: system() runs commands, signal() sends signals")
	f.BoolVar(&o.raw, "raw", false, "write control characters in names as they are, not as escapes like \\x1b")
	f.BoolVar(&o.test, "test", false, "run the probes test:NAME instead of the program, and exit with status 1 if one fails")
	f.BoolVar(&o.bench, "bench", false, "run the probes bench:NAME instead of the program, each at least 1 ms long, in user space")
	addFormatFlag(root, o)
	f.BoolP("version", "V", false, "print the version")
	addForeignFlags(f)
	completeValues(root, "format", output.Formats()...)
	completeValues(root, "debug", stages...)
}

// stages are the values of -d.
var stages = []string{"ast", "plan", "bpf"}

// addRunFlags declares the flags of every command that attaches probes.
func addRunFlags(cmd *cobra.Command, o *options) {
	f := cmd.Flags()
	f.VarP(&o.command, "cmd", "c", "run `COMMAND` once attached, and end when it ends; quote its words as in a shell; no shell runs it")
	f.IntVarP(&o.filter.PID, "pid", "p", 0, "only events of process `PID`, and end when it ends")
	f.BoolVar(&o.filter.Children, "children", false, "with -p or -c: also events of that process' descendants, running or started later")
	f.StringVar(&o.filter.Comm, "comm", "", "only events of threads called `NAME`")
	f.StringVar(&o.filter.Cgroup, "cgroup", "", "only events of cgroup `PATH`, as in /proc/PID/cgroup, and below it")
	f.IntVar(&o.filter.PGID, "pgid", 0, "only events of process group `PGID`")
	f.Var((*run.Namespace)(&o.filter.PIDNS), "pidns", "only events of pid namespace `INODE`, as lsns shows it; or a file like /proc/PID/ns/pid")
	f.Uint64VarP(&o.count, "count", "n", 0, "end after `N` printed events; for programs that print events")
	f.Var(&o.burst, "burst", "attach probes that are traps in the traced program (verbs:) for `ON/PERIOD` of the time, like 100ms/1s; counts are estimates")
	f.Var(&o.timeout, "timeout", "end after `DURATION`, like 500ms or 1m, or a number of seconds")
	f.BoolVar(&o.self, "self", false, "also show trace's own system calls, and with -c those before the command's execve")
	f.BoolVar(&o.strict, "strict", false, "exit with status 3 if events were lost, 4 if the command of -c failed")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no messages except errors and lost events")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print all fields of events; report variants, time to attach, and counts of events")
	f.Var(&o.bufferSize, "buffer-size", "`SIZE` of the buffer from the kernel, a power of two; raise it if events are lost")
	f.BoolVarP(&o.failures, "failures", "k", false, "warn of reads of a process's memory that failed: what they would show is absent or 0")
	f.BoolVar(&o.noWarnings, "no-warnings", false, "no warnings about the program")
	f.BoolVar(&o.dryRun, "dry-run", false, "attach, and end without running the program")
	addTypesFlag(cmd, o)
}

// addForceFlag declares the flag that allows replacing a recording.
func addForceFlag(cmd *cobra.Command, o *options) {
	cmd.Flags().BoolVar(&o.force, "force", false, "replace an existing recording")
}

// addHostFlags declares the flags that doctor has as well.
func addHostFlags(cmd *cobra.Command, o *options) {
	cmd.Flags().SortFlags = false
	addFormatFlag(cmd, o)
	completeValues(cmd, "format", "text", "json")
	addTypesFlag(cmd, o)
}

// addFormatFlag declares the flag for the format of the data.
func addFormatFlag(cmd *cobra.Command, o *options) {
	o.format.Format = output.Text
	cmd.Flags().VarP(&o.format, "format", "f", "`FORMAT` of the data: "+output.FormatList())
}

// addTypesFlag declares the flag for files of types.
func addTypesFlag(cmd *cobra.Command, o *options) {
	cmd.Flags().StringArrayVar(&o.btf, "btf", nil, "read types of modules without BTF from `FILE|DIR` (repeatable)")
}

// checkOptions returns an error for values that have the right type but make no sense.
func checkOptions(cmd *cobra.Command, o options) error {
	changed := cmd.Flags().Changed
	switch {
	case changed("pid") && o.filter.PID <= 0:
		return usagef("-p %d: a process id must be greater than 0", o.filter.PID)
	case changed("pgid") && o.filter.PGID <= 0:
		return usagef("--pgid %d: the id of a process group must be greater than 0", o.filter.PGID)
	case changed("comm") && o.filter.Comm == "":
		return usagef("--comm needs the name of a thread")
	case changed("cgroup") && o.filter.Cgroup == "":
		return usagef("--cgroup needs the path of a cgroup, like /system.slice")
	case changed("count") && o.count == 0:
		return usagef("-n 0: the number of events must be greater than 0")
	case o.filter.PID >= probes.PIDs:
		return usagef("-p %d: there is no such process", o.filter.PID) // on any machine
	case changed("cmd") && len(o.command) == 0:
		return usagef("-c needs a command")
	case o.filter.Children && len(o.recordings) > 0:
		return usagef("-r does not use --children: a recording does not contain which process started which")
	case o.filter.Children && o.filter.PID == 0 && len(o.command) == 0:
		return usagef("--children needs a process: give one, with -p PID or -c COMMAND")
	case changed("debug") && !slices.Contains(stages, o.debug):
		return usagef("-d %s: unknown stage: use ast, plan or bpf", o.debug)
	case changed("map-size") && o.mapSize == 0:
		return usagef("--map-size 0: a map needs room for a key")
	case changed("fields") && len(o.fields) == 0:
		return usagef("--fields needs names of fields, like latency,status")
	case changed("speed") && len(o.recordings) == 0:
		return usagef("--speed needs a recording: -r FILE")
	case changed("speed") && (o.speed <= 0 || math.IsNaN(o.speed)):
		return usagef("--speed %v: must be greater than 0", o.speed)
	case o.unsafe && o.compare:
		return usagef("--unsafe and --compare exclude each other: the program would act twice")
	case o.noKernel && o.compare:
		return usagef("--no-kernel and --compare exclude each other")
	case o.record != "" && o.compare:
		return usagef("--record and --compare exclude each other")
	case o.test && o.bench:
		return usagef("--test and --bench exclude each other")
	case o.quiet && o.verbose:
		return usagef("-q and -v exclude each other")
	}
	return nil
}

// checkOnly refuses flags that the chosen action does not use.
func checkOnly(cmd *cobra.Command, action string, allowed ...string) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(allowed, f.Name) {
			err = usagef("%s does not use --%s", action, f.Name)
		}
	})
	return err
}

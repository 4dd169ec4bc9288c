//go:build linux

package run

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"trace/probes"
	"trace/probes/verbs"
)

// VerbsDiagnosis is what verbs: sees on this machine, and what it costs, in the form of its JSON.
type VerbsDiagnosis struct {
	// Traps are what uprobes cost, TrapsUnknown is why that is unknown.
	Traps        []probes.TrapCost `json:"traps,omitempty"`
	TrapsUnknown string            `json:"traps_unknown,omitempty"`
	Processes    []verbs.Process   `json:"processes"`
	// Notes are what could not be found out.
	Notes []string `json:"notes,omitempty"`
}

// diagnoseVerbs looks into the processes that have RDMA devices open, and measures what a uprobe costs.
func diagnoseVerbs(ctx context.Context, btf []string) (d VerbsDiagnosis, err error) {
	catalog, err := probes.Load("verbs")
	if err != nil {
		return d, err
	}
	host, err := probes.Detect(catalog, probes.HostOptions{BTF: btf})
	if err != nil {
		return d, err
	}
	if d.Processes, d.Notes, err = host.Users(ctx); err != nil {
		return d, err
	}
	if d.Traps, err = host.Traps(); err != nil {
		d.TrapsUnknown = err.Error()
	}
	return d, nil
}

// Failed returns nil: that no program uses RDMA devices is no failure.
func (VerbsDiagnosis) Failed() error { return nil }

// Print writes the diagnosis as text.
func (d VerbsDiagnosis) Print(out io.Writer) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TRAP OF A UPROBE\tCOST OF A CALL")
	for _, t := range d.Traps {
		fmt.Fprintf(w, "%s\t%d ns\n", t.Name, t.Cost.Nanoseconds())
	}
	if d.TrapsUnknown != "" {
		fmt.Fprintf(w, "unknown\t%s\n", d.TrapsUnknown)
	}
	w.Flush()
	for _, p := range d.Processes {
		fmt.Fprintf(&text, "\n%d %s\n", p.PID, p.Comm)
		for _, o := range p.Devices {
			printOpen(&text, o)
		}
		if p.QPs > 0 {
			fmt.Fprintf(&text, "  %d QPs, %d in RTS\n", p.QPs, p.CanSend)
		}
		for _, line := range p.Unseen {
			fmt.Fprintf(&text, "  not seen: %s\n", line)
		}
	}
	if len(d.Processes) == 0 {
		fmt.Fprintln(&text, "\nno process that can be looked into has an RDMA device open")
	}
	for _, note := range d.Notes {
		fmt.Fprintf(&text, "\n%s\n", note)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func printOpen(w io.Writer, o verbs.Open) {
	name := o.Device
	if name == "" {
		name = "a device"
	}
	if o.Refused != "" {
		fmt.Fprintf(w, "  %s (descriptor %d): not followed: %s\n", name, o.FD, o.Refused)
		return
	}
	fmt.Fprintf(w, "  %s (descriptor %d): %s", name, o.FD, o.Library)
	if o.BuildID != "" {
		fmt.Fprintf(w, ", build id %s", o.BuildID)
	}
	fmt.Fprintf(w, "\n    by the context in memory: %s\n", strings.Join(o.Context, " "))
	if o.QPs != nil {
		fmt.Fprintf(w, "    by QPs in memory: %s\n", strings.Join(o.QPs, " "))
	}
	if o.CQs != nil {
		fmt.Fprintf(w, "    by extended CQs in memory: %s\n", strings.Join(o.CQs, " "))
	}
}

//go:build linux

package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"trace/probes"
	"trace/probes/symbols"
)

// Diagnosis is what this machine supports, in the form of its JSON.
type Diagnosis struct {
	Host   []hostFact       `json:"host"`
	Probes []probeDiagnosis `json:"probes"`
}

type hostFact struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	OK     bool   `json:"ok"`
	Advice string `json:"advice,omitempty"`
}

type probeDiagnosis struct {
	Name      string             `json:"name"`
	Available bool               `json:"available"`
	Variant   string             `json:"variant,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
	Variants  []variantDiagnosis `json:"variants"`
}

type variantDiagnosis struct {
	Name         string   `json:"name"`
	Error        string   `json:"error,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// A Finding is a [Diagnosis] or a [VerbsDiagnosis].
type Finding interface {
	// Print writes it as text.
	Print(out io.Writer) error
}

// Examine finds out what this machine supports, or, if topics has "verbs", which programs use RDMA devices and how verbs: sees them. btf are
// files and folders with types of modules.
func Examine(ctx context.Context, topics, btf []string) (Finding, error) {
	if slices.Contains(topics, "verbs") {
		return diagnoseVerbs(ctx, btf)
	}
	return diagnose(btf)
}

// diagnose finds out everything that decides whether a probe can be attached.
func diagnose(btf []string) (Diagnosis, error) {
	var d Diagnosis
	catalog, err := probes.Load()
	if err != nil {
		return d, err
	}
	host, err := probes.Detect(catalog, probes.HostOptions{BTF: btf})
	if err != nil {
		return d, err
	}
	for _, f := range host.Facts() {
		d.Host = append(d.Host, hostFact(f))
	}
	d.Host = append(d.Host, stackFact())
	for _, p := range catalog.Probes() {
		d.Probes = append(d.Probes, diagnoseProbe(host.Status(p)))
	}
	return d, nil
}

// stackFact reports whether kernel stacks have names here.
func stackFact() hostFact {
	if err := symbols.CheckKernel(); err != nil {
		return hostFact{Name: "kstack", Value: err.Error()}
	}
	return hostFact{Name: "kstack", Value: "names by /proc/kallsyms", OK: true}
}

func diagnoseProbe(st probes.Status) probeDiagnosis {
	d := probeDiagnosis{
		Name:      st.Probe.String(),
		Available: st.Variant != "",
		Variant:   st.Variant,
		Reason:    st.Reason,
		Notes:     st.Notes,
	}
	for _, v := range st.Variants {
		variant := variantDiagnosis{Name: v.Name, Capabilities: v.Caps}
		if v.Err != nil {
			variant.Error = v.Err.Error()
		}
		d.Variants = append(d.Variants, variant)
	}
	return d
}

// Print writes the diagnosis as two tables: the host, and below it the probes, each with its variants from best to worst. A group
// that is not available is one row.
func (d Diagnosis) Print(out io.Writer) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	for _, f := range d.Host {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, withAdvice(f.Value, f.Advice))
	}
	fmt.Fprintf(w, "\nPROBE\tAVAILABLE\tVARIANT\tNEEDS\tREMARK\n")
	for rest := d.Probes; len(rest) > 0; {
		group := rest[:groupLength(rest)]
		rest = rest[len(group):]
		if reasons := commonReasons(group); reasons != nil {
			probeDiagnosis{Name: group[0].group() + ":*", Reason: strings.Join(reasons, "; ")}.print(w)
			continue
		}
		for _, p := range group {
			p.print(w)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (p probeDiagnosis) group() string {
	group, _, _ := strings.Cut(p.Name, ":")
	return group
}

// groupLength returns how many of the probes, which are sorted, belong to the group of the first one.
func groupLength(all []probeDiagnosis) int {
	n := slices.IndexFunc(all, func(p probeDiagnosis) bool { return p.group() != all[0].group() })
	if n < 0 {
		return len(all)
	}
	return n
}

// commonReasons returns why no probe of a group of several is available, or nil. A group has one or two modules. If there are more
// reasons, they belong to its probes.
func commonReasons(group []probeDiagnosis) []string {
	const modules = 2
	var reasons []string
	for _, p := range group {
		if p.Available || len(group) == 1 {
			return nil
		}
		if !slices.Contains(reasons, p.Reason) {
			reasons = append(reasons, p.Reason)
		}
	}
	if len(reasons) > modules {
		return nil
	}
	return reasons
}

// print writes the rows of one probe: the variant in use, its notes, and why a better one is not in use.
func (p probeDiagnosis) print(w io.Writer) {
	if !p.Available {
		fmt.Fprintf(w, "%s\tno\t-\t-\t%s\n", p.Name, p.Reason)
		return
	}
	better, used := p.ranked()
	tableLine(w, p.Name, "yes", used.Name, strings.Join(used.Capabilities, " "), "")
	for _, note := range p.Notes {
		tableLine(w, "", "", "", "", note)
	}
	var last variantDiagnosis
	for _, v := range better {
		// Alternatives for other kernels have the same name, and often the same reason.
		if v.Name != last.Name || v.Error != last.Error {
			tableLine(w, "", "", "("+v.Name+")", strings.Join(v.Capabilities, " "), v.Error)
		}
		last = v
	}
}

// tableLine writes the cells of a row. All five are needed to align the columns of its neighbours.
func tableLine(w io.Writer, cells ...string) {
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// ranked returns the variant in use, and the better ones that are not available.
func (p probeDiagnosis) ranked() (better []variantDiagnosis, used variantDiagnosis) {
	i := slices.IndexFunc(p.Variants, func(v variantDiagnosis) bool { return v.Error == "" })
	return p.Variants[:i], p.Variants[i]
}

func withAdvice(value, advice string) string {
	if advice == "" {
		return value
	}
	return value + ": " + advice
}

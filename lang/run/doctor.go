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
	"trace/probes/event"
	"trace/probes/symbols"
)

// Diagnosis is what this machine supports, in the form of its JSON.
type Diagnosis struct {
	Host   []hostFact       `json:"host,omitempty"`
	Probes []probeDiagnosis `json:"probes"`
	// Program is the program that was asked about, nil without one.
	Program *Verdict `json:"program,omitempty"`
	// Quick means that nothing was attached: the kernel may refuse what is called available.
	Quick bool `json:"quick,omitempty"`

	asked string
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

// Verdict is whether a program runs here.
type Verdict struct {
	Name string `json:"name"`
	Runs bool   `json:"runs"`
	// Why it does not.
	Why string `json:"why,omitempty"`
	// LeftOut are what it goes on without, and Notes what its probes lack.
	LeftOut []string `json:"left_out,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// A Finding is a [Diagnosis] or a [VerbsDiagnosis].
type Finding interface {
	// Print writes it as text.
	Print(out io.Writer) error
	// Failed returns why what was asked about cannot be used here, nil if it can, or nothing was asked for.
	Failed() error
}

// A Question is what doctor is asked.
type Question struct {
	// About is the name of a script or its file, a glob of probes, a program, or verbs; "" asks about all probes, and the host.
	About string
	// BTF are files and folders with types of modules.
	BTF []string
	// Quick attaches nothing.
	Quick bool
}

// Examine finds out what this machine supports; about verbs: which programs use RDMA devices, and how verbs: sees them.
func Examine(ctx context.Context, q Question) (Finding, error) {
	if q.About == "verbs" {
		return diagnoseVerbs(ctx, q.BTF)
	}
	catalog, err := probes.Load()
	if err != nil {
		return nil, err
	}
	host, err := probes.Detect(catalog, probes.HostOptions{BTF: q.BTF})
	if err != nil {
		return nil, err
	}
	d := Diagnosis{asked: q.About, Quick: q.Quick}
	all := catalog.Probes()
	switch matching := event.Match(all, q.About); {
	case q.About == "":
		for _, f := range host.Facts() {
			d.Host = append(d.Host, hostFact(f))
		}
		d.Host = append(d.Host, stackFact())
	case matching != nil:
		all = matching
	default:
		if all, d.Program, err = judge(ctx, all, q); err != nil {
			return nil, err
		}
	}
	found, err := examine(ctx, host, all, q.Quick)
	for _, s := range found {
		d.Probes = append(d.Probes, diagnoseProbe(s))
	}
	return d, err
}

// examine returns the status of probes: by attaching them, unless it must be quick.
func examine(ctx context.Context, host *probes.Host, all []*event.Probe, quick bool) (found []probes.Status, err error) {
	if !quick {
		return host.Try(ctx, all)
	}
	for _, p := range all {
		found = append(found, host.Status(p))
	}
	return found, nil
}

// judge finds out whether a program runs here, and returns its probes.
func judge(ctx context.Context, all []*event.Probe, q Question) ([]*event.Probe, *Verdict, error) {
	name, text, err := TextNamed(q.About)
	if err != nil {
		return nil, nil, err
	}
	its, err := ProbesOf(all, name, text)
	if err != nil {
		return nil, nil, err
	}
	o := Options{Name: name, Text: text, Unsafe: true, Machine: Machine{BTF: q.BTF, DryRun: true}}
	l, err := NewLive(o)
	if err != nil {
		return nil, nil, err
	}
	v := &Verdict{Name: name}
	o.Unsafe = false
	if _, err := NewLive(o); err != nil {
		v.Notes = []string{"it acts on this machine: run it with --unsafe"}
	}
	if q.Quick {
		if err = l.prepare(); err == nil {
			err = probes.Available(l.host, l.plan.Requests())
		}
	} else {
		_, err = l.Run(ctx, Outputs{Note: v.note})
	}
	if v.Runs = err == nil; err != nil {
		v.Why = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return its, v, ctx.Err()
}

// note keeps what a run reports about its probes.
func (v *Verdict) note(n Note) {
	if a, ok := n.(Attached); ok {
		for _, l := range a.LeftOut {
			v.LeftOut = append(v.LeftOut, l.String())
		}
		v.Notes = append(v.Notes, a.Missing...)
	}
}

// Failed returns why the program does not run here, or that no probe that was asked for is available.
func (d Diagnosis) Failed() error {
	available := func(p probeDiagnosis) bool { return p.Available }
	switch {
	case d.asked == "":
		return nil
	case d.Program != nil && !d.Program.Runs:
		return fmt.Errorf("%s does not run here: %s", d.Program.Name, d.Program.Why)
	case d.Program == nil && !slices.ContainsFunc(d.Probes, available):
		return fmt.Errorf("%s: no such probe is available here", d.asked)
	}
	return nil
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
// that is not available is one row. The verdict about a program follows.
func (d Diagnosis) Print(out io.Writer) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	for _, f := range d.Host {
		fmt.Fprintf(w, "%s\t%s\n", f.Name, withAdvice(f.Value, f.Advice))
	}
	if len(d.Host) > 0 {
		fmt.Fprintln(w)
	}
	if len(d.Probes) > 0 {
		fmt.Fprintf(w, "PROBE\tAVAILABLE\tVARIANT\tNEEDS\tREMARK\n")
	}
	for rest := d.Probes; len(rest) > 0; {
		group := rest[:groupLength(rest)]
		rest = rest[len(group):]
		if reasons := commonReasons(group); reasons != nil {
			probeDiagnosis{Name: group[0].group() + ":*", Reason: eachOnce(reasons)}.print(w)
			continue
		}
		for _, p := range group {
			p.print(w)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if d.Quick {
		fmt.Fprintln(&table, "\nNothing was attached (--quick): the kernel may still refuse what is available here.")
	}
	if d.Program != nil && d.Program.Runs {
		d.Program.print(&table)
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (v Verdict) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s runs here\n", v.Name)
	for _, l := range v.LeftOut {
		fmt.Fprintf(out, "without %s\n", l)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(out, n)
	}
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

// eachOnce joins reasons, which may share causes.
func eachOnce(reasons []string) string {
	var causes []string
	for _, cause := range strings.Split(strings.Join(reasons, "; "), "; ") {
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	return strings.Join(causes, "; ")
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

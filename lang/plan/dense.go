package plan

import (
	"fmt"
	"slices"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// holdBack keeps the events of dense probes in the kernel: it refuses a site that sends them to user space, or leaves its probe out if the
// clause matches it by a wildcard and has others. Then the plan must be made again.
func (p *Plan) holdBack() (again bool, err error) {
	errs := syntax.ErrorList{}
	for _, b := range slices.Clone(p.Sites) {
		why := p.sends(b)
		if b.Probe.Dense == "" || why == "" {
			continue
		}
		if !b.Clause.Named[b.Probe] && p.sitesOf(b.Clause) > 1 {
			p.LeftOut = append(p.LeftOut, ir.LeftOut{Probe: b.Probe, Why: "it has too many events to send them to user space, and " + why})
			p.Sites = slices.DeleteFunc(p.Sites, func(o *Site) bool { return o == b })
			again = true
			continue
		}
		errs = append(errs, p.Program.Text.Error(b.Clause.Span, fmt.Sprintf("%s has too many events to send them to user space, and %s", b.Probe, why),
			fmt.Sprintf("use %s, or count in the kernel: %s { @[comm] = count() }", b.Probe.Dense, b.Probe)))
	}
	return again, errs.Err()
}

// sends returns why a site sends records to user space, or "".
func (p *Plan) sends(b *Site) string {
	switch {
	case p.Options.Record:
		return "they would be recorded"
	case p.Options.Compare:
		return "--compare needs them there"
	case b.InUser != nil:
		return fmt.Sprintf("%s runs there: %s", p.name(b.Clause), b.InUser.Reason)
	case len(b.User) > 0:
		return fmt.Sprintf("%s runs there: %s", p.text(b.User[0].e.Span), b.User[0].Why.Reason)
	case b.Prints:
		return "they are printed there"
	}
	why := ""
	ir.WalkStmts(b.Stmts, func(s ir.Stmt) {
		if call, is := s.(*ir.CallStmt); is && call.Fn != "delete" && why == "" {
			why = p.text(call.Span) + " runs there"
		}
	})
	return why
}

// sitesOf counts the sites of a clause.
func (p *Plan) sitesOf(c *ir.Clause) (n int) {
	for _, b := range p.Sites {
		if b.Clause == c {
			n++
		}
	}
	return n
}

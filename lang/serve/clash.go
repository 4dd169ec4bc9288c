//go:build linux

package serve

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"trace"
	"trace/lang/metrics/family"
	"trace/lang/serve/config"
	"trace/lang/serve/wire"
)

// owner is who has the name of a metric: a map of a program, or "".
type owner struct {
	what  string
	place config.Place
}

func (o owner) String() string {
	if o.what == "" {
		return "trace itself has"
	}
	return fmt.Sprintf("%s has, at %s", o.what, o.place)
}

// clashes returns an error if a metric has a name of another one: of another program, or of trace itself. It shows so many mistakes at most.
func clashes(programs []*program, most int) error {
	var mistakes []error
	more := 0
	names := ownNames()
	for _, p := range programs {
		for _, t := range p.compiled.Tables() {
			f, err := p.exporter.Metric(t)
			if err != nil {
				continue
			}
			mine := p.owner(strings.TrimPrefix(t.Name, "@"))
			name, other, clash := names.Take(f, mine)
			switch {
			case clash && len(mistakes) == most:
				more++
			case clash:
				help := fmt.Sprintf("give one of them another name: maps: {%s: {metric: NAME}}", cmp.Or(strings.TrimPrefix(t.Name, "@"), `"@"`))
				mistakes = append(mistakes, mine.place.Error(fmt.Sprintf("%s would have the name %s, which %s", mine.what, name, other), help))
			}
		}
	}
	if more > 0 {
		mistakes = append(mistakes, fmt.Errorf("and %d more names are taken", more))
	}
	return errors.Join(mistakes...)
}

// owner returns who has the names of a map's metric, and where that name is given.
func (p *program) owner(name string) owner {
	o := owner{fmt.Sprintf("@%s of program %s", name, p.spec.Name), p.spec.Place}
	if given := p.spec.Maps[name].Place; given.Known() {
		o.place = given
	}
	return o
}

// ownNames are the names of the metrics that trace has itself: of each run, of the service, and of its web process.
func ownNames() family.Names[owner] {
	names := family.Names[owner]{}
	for _, f := range family.Join(family.About(), reload{}.families("", nil, trace.Names{})) {
		names.Take(f, owner{})
	}
	for _, name := range []string{wire.OTLPEvents, wire.OTLPLost, wire.OTLPFailed, wire.ScrapeConflicts} {
		names.Take(family.Family{Name: name, Kind: family.Counter}, owner{})
	}
	return names
}

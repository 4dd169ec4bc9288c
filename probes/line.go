package probes

import (
	"fmt"
	"strings"

	"trace/probes/event"
)

// lineOf reads the line tag of a member of an event; most members have none.
func lineOf(tags []string, t event.Type) (event.Line, error) {
	tag := tagged(tags, "line:")
	kind, of, _ := strings.Cut(tag, ":")
	switch kind {
	case "detail":
		return event.Line{Shown: event.Detail}, nil
	case "usual":
		l := event.Line{Shown: event.Unusual, Of: of}
		if _, ok := l.Usual(t); !ok {
			return event.Line{}, fmt.Errorf("the usual value %s is not one of its values", of)
		}
		return l, nil
	case "instead":
		return event.Line{Shown: event.Instead, Of: of}, nil
	case "verbose":
		return event.Line{Shown: event.Verbose}, nil
	case "":
		if t.IsFlags() {
			return event.Line{Shown: event.Detail}, nil
		}
		return event.Line{}, nil
	}
	return event.Line{}, fmt.Errorf("unknown tag %q", "line:"+tag)
}

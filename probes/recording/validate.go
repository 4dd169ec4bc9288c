package recording

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"trace/probes/event"
)

// Limits of a header. A file may come from anywhere, and its description is kept while it is read.
const (
	maxRecords = 4096
	maxFields  = 1024
	maxNamed   = 4096 // values of an enum: they are searched one by one
	maxObjects = 1 << 16
	maxText    = 4096
	maxKernel  = 256
)

// common are the fields that have the same meaning, and so the same type, in all events.
var common = map[string]event.Type{
	"nsecs":  {Kind: event.Uint, Size: 8},
	"pid":    {Kind: event.Uint, Size: 4},
	"tid":    {Kind: event.Uint, Size: 4},
	"uid":    {Kind: event.Uint, Size: 4},
	"cpu":    {Kind: event.Uint, Size: 4},
	"cgroup": {Kind: event.Uint, Size: 8, Unit: event.Cgroup},
	"comm":   {Kind: event.String},
}

// checkText bounds the memory for the JSON of a header: objects need more memory than their text.
func checkText(text []byte) error {
	if n := bytes.Count(text, []byte("{")); n > maxObjects {
		return fmt.Errorf("corrupt: a header with %d objects", n)
	}
	return nil
}

// check returns an error for a header that no recording has.
func (h *fileHeader) check() error {
	switch {
	case len(h.Host) > hostSize:
		return fmt.Errorf("corrupt: the host's name has %d bytes", len(h.Host))
	case len(h.Kernel) > maxKernel || len(h.Arch) > maxKernel || len(h.BootID) > maxKernel:
		return errors.New("corrupt: the kernel's name is too long")
	case len(h.Records) > maxRecords:
		return fmt.Errorf("corrupt: %d kinds of records", len(h.Records))
	case len(h.Intervals) > len(h.Records):
		return fmt.Errorf("corrupt: %d intervals among %d kinds of records", len(h.Intervals), len(h.Records))
	}
	if err := h.checkLeftOut(); err != nil {
		return err
	}
	for name, e := range h.Enums {
		if err := e.check(name); err != nil {
			return err
		}
	}
	events := len(h.Records) - len(h.Intervals)
	for i, r := range h.Records {
		if i >= events {
			if period := h.Intervals[i-events]; r.Group != intervalGroup || r.Name != period.String() || period <= 0 {
				return fmt.Errorf("corrupt: %q is not an interval of %v", r.Group+":"+r.Name, period)
			}
		} else if !isName(r.Group, "") || !isName(r.Name, "") || r.Group == intervalGroup {
			return fmt.Errorf("corrupt: %q is not a name of a probe", r.Group+":"+r.Name)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("corrupt: records of %s:%s %w", r.Group, r.Name, err)
		}
	}
	return nil
}

func (h *fileHeader) checkLeftOut() error {
	named := map[string]bool{}
	for _, l := range h.LeftOut {
		if !isText(l.Why) {
			return errors.New("corrupt: no readable reason why probes were left out")
		}
		for _, name := range l.Probes {
			if !isName(name, ":") || named[name] || len(named) == maxRecords {
				return fmt.Errorf("corrupt: %.64q cannot be a probe that was left out", name)
			}
			named[name] = true
		}
	}
	return nil
}

func (r *recordDesc) check() error {
	switch n := len(r.Stacks); {
	case r.Size < 8 || r.Size > maxBlock:
		return fmt.Errorf("have %d bytes", r.Size)
	case n != 0 && n != recordedStacks:
		return fmt.Errorf("have %d stacks", n)
	case len(r.Fields) > maxFields:
		return fmt.Errorf("have %d fields", len(r.Fields))
	case !isText(r.Doc):
		return errors.New("have no readable description")
	}
	seen := map[string]bool{}
	for _, f := range r.Fields {
		switch {
		case !isName(f.Name, "."):
			return fmt.Errorf("have a field %q", f.Name)
		case f.Name == hostField:
			return errors.New("have a field host, which belongs to the file")
		case seen[f.Name]:
			return fmt.Errorf("have the field %s twice", f.Name)
		case !isText(f.Doc):
			return fmt.Errorf("have a field %s without a readable description", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func (e *enumDesc) check(name string) error {
	if !isName(strings.ToLower(name), "") || len(e.Names) != len(e.Values) || len(e.Names) > maxNamed {
		return fmt.Errorf("corrupt: enum %.64q of %d names and %d values", name, len(e.Names), len(e.Values))
	}
	for _, n := range e.Names {
		if !isName(strings.ToLower(n), "") {
			return fmt.Errorf("corrupt: enum %s has the name %.64q", name, n)
		}
	}
	return nil
}

// checkType returns an error for a type that no field has: comparing and printing rely on it.
func checkType(name string, t event.Type) error {
	number := t.Kind == event.Int || t.Kind == event.Uint
	switch want, is := common[name]; {
	case is && (t.Kind != want.Kind || want.Unit != event.None && t.Unit != want.Unit || want.Size != 0 && t.Size != want.Size):
		return fmt.Errorf("corrupt: field %s is not of its type", name)
	case t.Enum != nil && !number:
		return fmt.Errorf("corrupt: field %s has names but is not a number", name)
	case t.Unit == event.IP && t.Kind != event.GID, t.Unit != event.None && t.Unit != event.IP && !number:
		return fmt.Errorf("corrupt: field %s has a unit but is not a number", name)
	case t.Unit == event.Cgroup && (t.Kind != event.Uint || t.Size != 8):
		return fmt.Errorf("corrupt: field %s is not an id of a cgroup", name)
	}
	return nil
}

// isName reports whether a name could be in the catalog.
func isName(s, more string) bool {
	return s != "" && len(s) <= maxText && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_"+more) == ""
}

func isText(s string) bool {
	return len(s) <= maxText && !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

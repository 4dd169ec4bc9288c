package probes

import (
	"testing"

	"trace/probes/event"
)

// Reads of a process's memory count their failures only if that is asked for, each program for its own probe.
func TestFailedReads(t *testing.T) {
	c := load(t)
	const program = "uprobe_verbs_post_send__post_send"
	for _, asked := range []bool{false, true} {
		p := c.Match("verbs:post_send")[0]
		req, _ := want{probe: p, fields: []*event.Field{p.Field("opcode")}}.request(0)
		req.CountsFailures = asked
		r := c.request(req)
		object, err := c.objects[p.Group].whole()
		if err != nil {
			t.Fatal(err)
		}
		l := &loader{spec: object.Copy(), readers: make(map[string]byte)}
		if asked {
			l.readers[program] = byte(placeOf(0))
		}
		prog := l.spec.Programs[program]
		if _, err := specialize(prog, rawTracepoint{}, []*request{r}, l.asReader(program, constantsFor(l.spec, hostConstants{}, r))); err != nil {
			t.Fatal(err)
		}
		if got := refersTo(prog.Instructions, failedReadsName); got != asked {
			t.Errorf("asked for: %v; counted: %v", asked, got)
		}
	}
}

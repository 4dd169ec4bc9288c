package run

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"trace/probes/event"
)

// listedProbes are probes whose field is of an enum.
var listedProbes = func() (all []*event.Probe) {
	state := event.Type{Kind: event.Uint, Size: 4, Enum: &event.Enum{Name: "qp_state", Names: []string{"INIT"}, Values: []int64{1}}}
	for _, name := range []string{"destroy_qp", "modify_qp"} {
		all = append(all, &event.Probe{Group: "ib", Name: name, Fields: []*event.Field{{Name: "state", Type: state}}})
	}
	return append(all, &event.Probe{Group: "nvme", Name: "complete_rq"})
}()

func TestListed(t *testing.T) {
	script := filepath.Join(t.TempDir(), "a.trace")
	if err := os.WriteFile(script, []byte("ib:modify_qp { @ = count() } begin { @ = count() }"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"nvme:complete_rq":          "[nvme:complete_rq]",
		"ib:*_qp, nvme:complete_rq": "[ib:destroy_qp ib:modify_qp nvme:complete_rq]",
		"complete":                  "[nvme:complete_rq]",
		"nosuch":                    "[]",
		"./nosuch":                  "[]",
		script:                      "[ib:modify_qp]",
	} {
		found, err := Listed(listedProbes, text)
		if got := fmt.Sprint(found); got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if found, err := ProbesOf(listedProbes, "program", "nosuch:x"); err == nil {
		t.Errorf("got %v", found)
	}
	if e := Enum(listedProbes, "qp_state"); e == nil || Enum(listedProbes, "nosuch") != nil {
		t.Error("wrong enum")
	}
}

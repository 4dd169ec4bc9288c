//go:build linux

package run

import (
	"strings"
	"testing"
)

// A group whose modules are missing is one row. A group with an available probe, or whose probes lack different things, is not.
func TestDiagnosisFoldsGroups(t *testing.T) {
	works := []variantDiagnosis{{Name: "raw_tp", Capabilities: []string{"CAP_BPF"}}}
	no := func(name, reason string) probeDiagnosis { return probeDiagnosis{Name: name, Reason: reason} }
	d := Diagnosis{Probes: []probeDiagnosis{
		no("cm:a", "no module"), no("cm:b", "no module"),
		no("mlx5:a", "no module"), no("mlx5:cmd", "no other module"), no("mlx5:z", "no module"),
		no("nvme:a", "no function"), {Name: "nvme:b", Available: true, Variant: "raw_tp", Variants: works},
		no("odd:a", "one"), no("odd:b", "two"), no("odd:c", "three"),
		no("rdma:resource", "no module"),
	}}
	var out strings.Builder
	if err := d.Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
PROBE          AVAILABLE  VARIANT  NEEDS    REMARK
cm:*           no         -        -        no module
mlx5:*         no         -        -        no module; no other module
nvme:a         no         -        -        no function
nvme:b         yes        raw_tp   CAP_BPF
odd:a          no         -        -        one
odd:b          no         -        -        two
odd:c          no         -        -        three
rdma:resource  no         -        -        no module
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

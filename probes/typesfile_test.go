//go:build linux

package probes

import (
	"slices"
	"strings"
	"testing"
)

// The file of types names what the probes are known to read of each module, and includes the headers of all.
func TestWriteTypes(t *testing.T) {
	catalog, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := catalog.WriteTypes(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		"#include <linux/mlx5/driver.h>", "#include <rdma/ib_verbs.h>", "#include <rdma/rdma_cm.h>", "#include <rdma/rdma_counter.h>",
		"#include <rdma/uverbs_ioctl.h>", `#include "cma_priv.h"`, `#include "nvme.h"`,
		"struct ib_qp *ib_qp_;", "struct ib_uobject *ib_uobject_;", "struct rdma_id_private *rdma_id_private_;", "struct uverbs_attr_bundle *uverbs_attr_bundle_;",
		"struct mlx5_core_dev *mlx5_core_dev_;", "struct nvme_ctrl *nvme_ctrl_;", "struct nvme_request *nvme_request_;", `MODULE_LICENSE("GPL");`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(b.String(), "inflight") {
		t.Errorf("the file asks for structs of our own:\n%s", &b)
	}
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "struct "); ok && !slices.ContainsFunc([]string{"ib_", "rdma_", "uverbs_", "mlx5_", "nvme_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			t.Errorf("no module has %s", line)
		}
	}
}

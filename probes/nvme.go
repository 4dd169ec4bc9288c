package probes

import (
	"path/filepath"

	"trace/probes/kernel"
)

// maxInflight bounds the memory for NVMe commands in flight: about 16 MiB. Large machines have millions of tags but use few.
const maxInflight = 1 << 16

// nvmeRequests returns how many NVMe commands can be in flight: a request for each tag of each hardware queue.
func nvmeRequests() uint32 {
	total := 0
	disks, _ := filepath.Glob("/sys/block/nvme*")
	for _, disk := range disks {
		queues, _ := filepath.Glob(disk + "/mq/*")
		total += max(len(queues), 1) * kernel.ReadInt(disk+"/queue/nr_requests")
	}
	return uint32(min(total, maxInflight))
}

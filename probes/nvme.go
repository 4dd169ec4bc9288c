package probes

import (
	"path/filepath"

	"trace/probes/kernel"
)

// maxInflight bounds the memory for requests in flight: about 16 MiB. Large machines have millions of tags but use few.
const maxInflight = 1 << 16

// nvmeRequests returns how many NVMe commands can be in flight.
func nvmeRequests() uint32 { return requestsOf("nvme*") }

// diskRequests returns how many requests of disks can be in flight.
func diskRequests() uint32 { return requestsOf("*") }

// requestsOf returns how many requests can be in flight on the disks whose names match: one for each tag of each hardware queue.
func requestsOf(pattern string) uint32 {
	total := 0
	disks, _ := filepath.Glob("/sys/block/" + pattern)
	for _, disk := range disks {
		queues, _ := filepath.Glob(disk + "/mq/*")
		total += max(len(queues), 1) * kernel.ReadInt(disk+"/queue/nr_requests")
	}
	return uint32(min(total, maxInflight))
}

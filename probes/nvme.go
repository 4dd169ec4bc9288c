package probes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readInt reads a file that holds a number; it is 0 if that cannot be read.
func readInt(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}

// maxInflight bounds the memory for NVMe commands in flight: about 16 MiB. Large machines have millions of tags, and use a few.
const maxInflight = 1 << 16

// nvmeRequests returns how many NVMe commands can be in flight: a request for each tag of each hardware queue.
func nvmeRequests() uint32 {
	total := 0
	disks, _ := filepath.Glob("/sys/block/nvme*")
	for _, disk := range disks {
		queues, _ := filepath.Glob(disk + "/mq/*")
		total += max(len(queues), 1) * readInt(disk+"/queue/nr_requests")
	}
	return uint32(min(total, maxInflight))
}

package main

import (
	"fmt"
	"path/filepath"
)

// bounceMemory makes the guest's drivers copy all data through 4 MiB of memory (2048 slots of 2 KiB). When it is full, the NVMe driver
// takes a command back, as it does on a busy machine without memory.
const bounceMemory = " swiotlb=2048,force"

// moreDisks are the files of the disks of moreNVMe.
func (s *session) moreDisks() []string {
	var files []string
	for _, name := range []string{"zoned", "errors", "slow"} {
		files = append(files, filepath.Join(s.dir, name))
	}
	return files
}

// moreNVMe are three more controllers, which tests know by their serial numbers:
//
//   - zoned: a namespace of zones of 1 MiB, 8 of them open at most, with descriptor extensions of 64 bytes;
//   - errors: blocks that cannot be read (sector 2048), cannot be read once (4096), cannot be written (6144), cannot be written once (8192);
//   - slow: 64 KiB a second.
func (s *session) moreNVMe() []string {
	files := s.moreDisks()
	raw := func(id int) string {
		return fmt.Sprintf("if=none,id=more%d,format=raw,cache=unsafe,file=%s", id, qemuEscape(files[id]))
	}
	args := []string{
		"-drive", raw(0),
		"-device", "nvme,id=zoned,serial=zoned",
		"-device", "nvme-ns,bus=zoned,drive=more0,nsid=1,logical_block_size=4096,physical_block_size=4096," +
			"zoned=true,zoned.zone_size=1M,zoned.zone_capacity=1M,zoned.max_open=8,zoned.max_active=8,zoned.descr_ext_size=64",
	}
	errors := "if=none,id=more1,format=raw,cache=unsafe,file.driver=blkdebug,file.image.driver=file,file.image.filename=" + qemuEscape(files[1])
	for i, rule := range []struct {
		event  string
		sector int
		once   string
	}{{"read_aio", 2048, "off"}, {"read_aio", 4096, "on"}, {"write_aio", 6144, "off"}, {"write_aio", 8192, "on"}} {
		errors += fmt.Sprintf(",file.inject-error.%d.event=%s,file.inject-error.%[1]d.errno=5,file.inject-error.%[1]d.sector=%[3]d,file.inject-error.%[1]d.once=%[4]s",
			i, rule.event, rule.sector, rule.once)
	}
	return append(args,
		"-drive", errors,
		"-device", "nvme,id=errors,serial=errors",
		"-device", "nvme-ns,bus=errors,drive=more1,nsid=1",
		"-drive", raw(2)+",throttling.bps-total=65536",
		"-device", "nvme,id=slow,serial=slow",
		"-device", "nvme-ns,bus=slow,drive=more2,nsid=1",
	)
}

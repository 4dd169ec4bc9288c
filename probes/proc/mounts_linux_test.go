package proc

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Files of programs that users run are not opened, nor files of unknown devices.
func TestMounts(t *testing.T) {
	const list = `22 28 0:20 / /proc rw,nosuid - proc proc rw
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 28 0:50 / /home/u/mnt rw,nosuid,nodev - fuse.sshfs host: rw,user_id=1000,group_id=1000
41 28 0:51 / /cvmfs rw,nosuid,nodev shared:5 master:2 - fuse.cvmfs2 cvmfs2 rw,user_id=0,group_id=0,default_permissions,allow_other
42 28 0:52 / /mnt/usb rw - fuseblk /dev/sdb1 rw,user_id=0,group_id=0
43 28 0:53 / /data rw - virtiofs data rw
46 28 0:56 / /over rw - overlay overlay rw,lowerdir=/srv:/home/u/mnt/layer,upperdir=/x
45 28 0:55 / /merged rw - overlay overlay rw,lowerdir=/mnt/fuse:/empty
broken
44 28 0:54 / /x rw - fuse
`
	read := func(first bool) *Mounts {
		m := newMounts(first)
		if err := m.read(strings.NewReader(list), first); err != nil {
			t.Fatal(err)
		}
		m.look()
		return m
	}
	for device, want := range map[uint64][2]bool{ // in the first user namespace, and in another one
		unix.Mkdev(0, 20): {true, true}, unix.Mkdev(8, 1): {true, true}, unix.Mkdev(8, 2): {true, true}, unix.Mkdev(0, 50): {false, false},
		unix.Mkdev(0, 51): {true, false}, unix.Mkdev(0, 52): {true, false}, unix.Mkdev(0, 53): {true, true}, unix.Mkdev(0, 99): {false, false},
		unix.Mkdev(0, 54): {false, false}, unix.Mkdev(0, 55): {true, false}, unix.Mkdev(0, 56): {false, false},
	} {
		for i, first := range []bool{true, false} {
			if err := read(first).Answers(device); (err == nil) != want[i] {
				t.Errorf("device %d:%d, first namespace %v: %v", unix.Major(device), unix.Minor(device), first, err)
			}
		}
	}
	for device, want := range map[uint64]string{
		unix.Mkdev(0, 50): "its file system is, or may be, a program of a user (FUSE), which may never answer",
		unix.Mkdev(0, 99): "its file system is not among the mounts of the process",
	} {
		if err := read(true).Answers(device); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// An overlay that the host has, too, was mounted there.
	m := read(true)
	if err := m.read(strings.NewReader(list), false); err != nil || m.Answers(unix.Mkdev(0, 55)) != nil || m.Answers(unix.Mkdev(0, 50)) == nil {
		t.Errorf("the host's overlay: %v, %v", err, m.Answers(unix.Mkdev(0, 55)))
	}
}

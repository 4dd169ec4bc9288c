//go:build linux

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trace/lang/metrics/family"
)

// counted is what a program has counted, for a process that runs the same program later.
type counted struct {
	Program, Identity string
	State             family.State
}

// State returns what the programs have counted. They must have ended: nothing is counted twice or not at all.
func (s *Service) State() ([]byte, error) {
	programs, _ := s.now()
	var all []counted
	for _, p := range programs {
		all = append(all, counted{p.spec.Name, p.identity, p.exporter.State()})
	}
	return json.Marshal(all)
}

// Restore makes the programs go on from what they have counted in another process. Changed ones begin at 0. It comes before Run.
func (s *Service) Restore(state []byte) error {
	var all []counted
	if err := json.Unmarshal(state, &all); err != nil {
		return fmt.Errorf("what was counted before: %w", err)
	}
	programs, _ := s.now()
	for _, p := range programs {
		for _, c := range all {
			if c.Program == p.spec.Name && c.Identity == p.identity {
				p.exporter.Restore(c.State)
			}
		}
	}
	return nil
}

// stateName is the name of the state among what systemd keeps of a service with FileDescriptorStoreMax=.
const stateName = "trace-state"

// takeState returns what systemd has kept, nil if that is nothing. systemd forgets it: after a crash it would be too old, and counters would fall.
func takeState() ([]byte, error) {
	files := givenFiles()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	i := slices.IndexFunc(files, func(f *os.File) bool { return f.Name() == stateName })
	if i < 0 {
		return nil, nil
	}
	if err := notifyWith("FDSTOREREMOVE=1\nFDNAME="+stateName, -1); err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(files[i], 0, maxState))
}

// givenFiles returns what systemd has given this process, by name (sd_listen_fds_with_names(3)), once. go-systemd's package for it links
// crypto/tls.
func givenFiles() (files []*os.File) {
	const first = 3 // SD_LISTEN_FDS_START
	pid, names := os.Getenv("LISTEN_PID"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // children have other files
	}
	if err != nil || n != len(names) || pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	for i, name := range names {
		unix.CloseOnExec(first + i)
		files = append(files, os.NewFile(uintptr(first+i), name))
	}
	return files
}

// maxState is far above what a thousand series of each map need.
const maxState = 1 << 30

// keepState gives systemd what the next process goes on from: a file in memory, which can no longer be changed. Without systemd, nothing happens.
func keepState(state []byte) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	fd, err := unix.MemfdCreate(stateName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), stateName)
	defer f.Close()
	if _, err := f.Write(state); err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	if err := notifyWith("FDSTORE=1\nFDNAME="+stateName, fd); err != nil {
		return err
	}
	return barrier(heardWithin)
}

// heardWithin is how long systemd may take to read what it was sent.
const heardWithin = 5 * time.Second

// barrier waits until systemd has read all messages: it does not know whose they are if their sender has ended (sd_notify_barrier(3)).
func barrier(within time.Duration) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(pipe[0])
	err := notifyWith("BARRIER=1", pipe[1])
	if err = errors.Join(err, unix.Close(pipe[1])); err != nil {
		return err
	}
	heard := []unix.PollFd{{Fd: int32(pipe[0])}}
	for deadline := time.Now().Add(within); ; {
		n, err := unix.Poll(heard, int(max(time.Until(deadline), 0)/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll: %w", err)
		case n == 0:
			return fmt.Errorf("systemd has not read its messages within %v", within)
		default:
			return nil
		}
	}
}

// notifyWith sends a message to systemd as sd_notify(3) describes, with a file descriptor unless that is -1: go-systemd sends none.
func notifyWith(message string, fd int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(socket)
		var rights []byte
		if fd >= 0 {
			rights = unix.UnixRights(fd)
		}
		err = unix.Sendmsg(socket, []byte(message), rights, &unix.SockaddrUnix{Name: path}, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET %s: %w", path, err)
	}
	return nil
}

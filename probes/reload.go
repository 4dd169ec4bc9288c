//go:build linux

package probes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A module that is unloaded takes the kprobes on its functions along (kprobes_module_callback, kernel/kprobes.c), and when it is loaded
// again they do not come back. Programs of other kinds keep their module from being unloaded. So we listen to what the kernel says of
// modules, and attach again.

// openUevents opens what the kernel says of its objects (lib/kobject_uevent.c). A read returns one message; it ends when the file is
// closed.
func openUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	const ofTheKernel = 1 // group of messages
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ofTheKernel}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// loadedModule returns which module a message says is being loaded, "" for any other message. It is sent before the module begins
// (mod_sysfs_setup, kernel/module).
func loadedModule(message []byte) string {
	head, _, _ := bytes.Cut(message, []byte{0})
	name, found := strings.CutPrefix(string(head), "add@/module/")
	if !found || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// watchModules attaches again to what comes again, until the returned function is called. Nothing is watched if the session has no kprobe.
// deaf is why there are no messages.
func (s *Session) watchModules(uevents *os.File, deaf error) (stop func()) {
	if !slices.ContainsFunc(s.allAttached(), (*attached).onFunction) {
		return func() { uevents.Close() }
	}
	if deaf != nil {
		s.note(nil, fmt.Sprintf("a module that is loaded again will not be traced: what the kernel says of modules cannot be read: %v", deaf))
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		message := make([]byte, 1<<16)
		for {
			n, err := uevents.Read(message)
			switch {
			case errors.Is(err, unix.ENOBUFS):
				s.note(nil, "the kernel says more of modules than could be read: one that was loaded again may not be traced")
			case err != nil:
				return
			}
			if name := loadedModule(message[:max(n, 0)]); name != "" {
				s.reattach(name, time.Now())
			}
		}
	}()
	return func() {
		uevents.Close()
		<-done
	}
}

// allAttached are all programs.
func (s *Session) allAttached() (all []*attached) {
	for _, r := range s.requests {
		all = append(all, r.attached...)
	}
	for _, inv := range s.inventories {
		all = append(all, inv.visitors...)
	}
	return all
}

// onFunction tells whether the program is attached by a kprobe.
func (a *attached) onFunction() bool { return a.place.kind == "kprobe" || a.place.kind == "kretprobe" }

// reattach attaches to the functions of a module that came at a time. Until then nobody saw them.
func (s *Session) reattach(module string, came time.Time) {
	wanted := make(map[string]bool)
	for _, a := range s.allAttached() {
		if a.onFunction() {
			wanted[a.place.target] = true
		}
	}
	functions, err := functionsOf("/proc/kallsyms", module, wanted)
	if err != nil {
		s.note(nil, fmt.Sprintf("module %s was loaded, and may not be traced: %v", module, err))
		return
	}
	for _, r := range s.requests {
		again, err := r.reattach(functions)
		switch {
		case err != nil:
			s.note(r.Probe, fmt.Sprintf("module %s was loaded again at %s, and is not traced any more: %v", module, clock(came), err))
		case len(again) > 0:
			s.note(r.Probe, fmt.Sprintf("module %s was loaded again: %s not seen from %s to %s",
				module, strings.Join(again, ", "), clock(came), clock(time.Now())))
		}
	}
	for _, inv := range s.inventories {
		for _, a := range inv.visitors {
			if functions[a.place.target] {
				a.reattach() // where it cannot be, walks meet nothing, and correct nothing
			}
		}
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }

// reattach attaches the programs on functions anew, and names these.
func (r *request) reattach(functions map[string]bool) (names []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.attached {
		if !a.onFunction() || !functions[a.place.target] {
			continue
		}
		if !slices.Contains(names, a.place.target) {
			names = append(names, a.place.target)
		}
		err = errors.Join(err, a.reattach())
	}
	if len(names) > 0 {
		r.gaps++
	}
	return names, err
}

// reattach attaches the program anew where it was.
func (a *attached) reattach() error {
	a.detach() // of what is gone, an error would say nothing
	links, err := attachProgram(a.place, a.program, 0)
	if err != nil {
		return fmt.Errorf("attach to %s: %w", a.place.target, explain(err))
	}
	a.links = links
	return nil
}

// functionsOf returns which of the wanted functions a module has and nothing else, by the kernel's symbols: a new module may have a
// function of the same name.
func functionsOf(path, module string, wanted map[string]bool) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, others := make(map[string]bool), make(map[string]bool)
	r := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name, owner := symbolOf(line)
		switch {
		case !wanted[string(name)]:
		case string(owner) == module:
			found[string(name)] = true
		default:
			others[string(name)] = true
		}
	}
	for name := range others {
		delete(found, name)
	}
	return found, nil
}

// symbolOf reads a line of kallsyms, "ffffffff81000000 T name" or "… T name\t[module]".
func symbolOf(line []byte) (name, module []byte) {
	i := bytes.IndexByte(line, ' ')
	if i < 0 || len(line) <= i+3 {
		return nil, nil
	}
	name, module, _ = bytes.Cut(bytes.TrimSuffix(line[i+3:], []byte("\n")), []byte("\t"))
	return name, bytes.Trim(module, "[]")
}

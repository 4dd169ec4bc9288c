package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// firstModules are what the guest needs before it sees a file of this machine.
func firstModules() []string {
	return []string{"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"}
}

func (s *session) initramfs() string { return filepath.Join(s.dir, "initramfs") }

func (s *session) writeInitramfs(ctx context.Context, args []string) error {
	modules, err := moduleFiles(ctx, s.img, firstModules())
	if err != nil {
		return err
	}
	f, err := os.Create(s.initramfs())
	if err != nil {
		return err
	}
	c := newCPIO(f)
	c.addHostFile("bin/busybox", s.img.busybox, 0o755)
	c.addFile("init", 0o755, guestInit)
	c.addFile("start", 0o755, guestStart)
	c.addFile("command", 0o755, []byte(s.script(args)))
	c.addFile("config", 0o644, []byte(s.config()))
	var order strings.Builder
	for _, path := range modules {
		name := filepath.Base(path)
		c.addHostFile("modules/"+name, path, 0o644)
		fmt.Fprintln(&order, name)
	}
	c.addFile("modules/order", 0o644, []byte(order.String()))
	return errors.Join(c.close(), f.Close())
}

// moduleFiles lists the files of modules and of what they need, in the order
// of loading.
func moduleFiles(ctx context.Context, img image, names []string) ([]string, error) {
	args := append([]string{"--show-depends", "-d", img.dir, "-S", img.release, "-a"}, names...)
	out, err := runTool(ctx, "modprobe", args...)
	if err != nil {
		return nil, fmt.Errorf("find modules: %w", err)
	}
	return insmodPaths(out), nil
}

// insmodPaths reads lines "insmod PATH OPTIONS"; lines "builtin NAME" need
// nothing.
func insmodPaths(text string) []string {
	var out []string
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "insmod" && !seen[f[1]] {
			seen[f[1]] = true
			out = append(out, f[1])
		}
	}
	return out
}

// A disk is one namespace of the guest's first NVMe controller.
type disk struct {
	path      string
	blockSize int
}

func (s *session) disks() []disk {
	return []disk{
		{filepath.Join(s.dir, "disk1"), 512},
		{filepath.Join(s.dir, "disk2"), 4096},
	}
}

// makeDisk makes a file that takes no space until it is written.
func makeDisk(path string) error {
	const size = 128 << 20
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// qemu returns the command line of the virtual machine. The command's output
// comes through file descriptor outputFD, the console through stdout.
func (s *session) qemu(accel string) (program string, args []string) {
	args = []string{"-cpu", "max"}
	// On a busy machine the kernel's check that timer interrupts arrive in time
	// fails, and that would be the end of the boot.
	program, console, more := "qemu-system-x86_64", "ttyS0", " tsc=reliable no_timer_check"
	if s.opt.kernel.foreign() {
		program, console, more = "qemu-system-aarch64", "ttyAMA0", ""
		// Emulated pointer authentication costs much and is of no use here.
		args = []string{"-machine", "virt", "-cpu", "max,pauth-impdef=on"}
	}
	if strings.HasPrefix(accel, "tcg") && !s.opt.kernel.foreign() {
		more += clockParameter()
		// What an emulated CPU does slowly: it copies and clears byte by byte with these instructions, goes through five levels of page
		// tables, and leaves translated code at each access to a user's memory. A tenth of the time, and nothing that a test looks at.
		args = []string{"-cpu", "max,-erms,-fsrm,-la57,-smap"}
	}
	if s.opt.nvme {
		more += bounceMemory
	}
	for _, words := range []string{s.opt.kernel.append, s.opt.append} {
		if words != "" {
			more += " " + words
		}
	}
	args = append(args,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", accel, "-smp", "2", "-m", "2G",
		"-kernel", s.img.vmlinuz(), "-initrd", s.initramfs(),
		// An oops ends the machine at once instead of leaving it half alive.
		"-append", "console="+console+" quiet panic=-1 oops=panic nokaslr mitigations=off init_on_alloc=0"+more,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("file,id=output,path=/dev/fd/%d", outputFD),
		"-device", "virtserialport,chardev=output,name=vmtest",
		"-virtfs", "local,id=host,mount_tag=host,path=/,readonly=on,multidevs=remap,security_model=none",
		"-virtfs", "local,id=share,mount_tag=share,path="+qemuEscape(s.share)+",multidevs=remap,security_model=none",
		"-device", "nvme,id=nvme0,serial=vmtest",
		// A network card whose driver has counters. It reaches QEMU alone.
		"-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile=",
	)
	for i, d := range s.disks() {
		args = append(args,
			"-drive", fmt.Sprintf("id=disk%d,if=none,format=raw,cache=unsafe,discard=unmap,file=%s", i, qemuEscape(d.path)),
			"-device", fmt.Sprintf("nvme-ns,bus=nvme0,drive=disk%d,nsid=%d,logical_block_size=%d,physical_block_size=%[3]d", i, i+1, d.blockSize))
	}
	if s.opt.nvme {
		args = append(args, s.moreNVMe()...)
	}
	return program, args
}

// qemuEscape protects a path in a list of options.
func qemuEscape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// accelerator is emulation unless the user knows better: hardware help is often
// present but broken inside other virtual machines. Emulated CPUs share one
// thread because a CPU of its own thread can miss that another one rewrites
// kernel code, which is what attaching a probe does.
func accelerator(getenv func(string) string) string {
	if accel := getenv("VMTEST_ACCEL"); accel != "" {
		return accel
	}
	return "tcg,thread=single"
}

// outputFD is the number that the first of exec.Cmd.ExtraFiles gets.
const outputFD = 3

// boot runs the virtual machine to its end.
func (s *session) boot(ctx context.Context, p *progress, stdout, stderr io.Writer) (*console, error) {
	cause := fmt.Errorf("not done after %v (-timeout)", s.opt.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, s.opt.timeout, cause)
	defer cancel()
	cons := &console{onStart: func() { p.printf("running the command") }}
	if s.opt.verbose {
		cons.copy = stderr
	}
	read, write, err := os.Pipe()
	if err != nil {
		return cons, err
	}
	defer read.Close()
	program, args := s.qemu(accelerator(os.Getenv))
	cmd := command(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = cons, cons
	cmd.ExtraFiles = []*os.File{write}
	cmd.WaitDelay = 5 * time.Second
	return cons, runWithOutput(ctx, cmd, write, read, stdout)
}

// runWithOutput runs cmd and copies what it writes to the pipe.
func runWithOutput(ctx context.Context, cmd *exec.Cmd, write, read *os.File, stdout io.Writer) error {
	// The kernel kills QEMU when the thread that started it ends, so that it
	// never outlives this process; hence the thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err := cmd.Start()
	write.Close()
	if err != nil {
		return fmt.Errorf("start the virtual machine: %w", err)
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(stdout, read)
		copied <- err
		io.Copy(io.Discard, read) // QEMU must not block if our reader is gone
	}()
	err = cmd.Wait()
	copyErr := <-copied
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("virtual machine: %w", err)
	case copyErr != nil:
		return fmt.Errorf("write output of the command: %w", copyErr)
	}
	return nil
}

// console keeps what the kernel prints.
type console struct {
	mu      sync.Mutex
	text    bytes.Buffer
	copy    io.Writer // if set, gets everything at once
	onStart func()    // called when the guest starts the command
	started bool
}

const startMark = "vmtest: running the command"

func (c *console) Write(p []byte) (int, error) {
	const keep = 1 << 20
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.copy != nil {
		if _, err := c.copy.Write(p); err != nil {
			c.copy = nil
		}
	}
	c.text.Write(p)
	if !c.started && bytes.Contains(c.text.Bytes(), []byte(startMark)) {
		c.started = true
		c.onStart()
	}
	if c.text.Len() > 2*keep {
		c.text.Next(c.text.Len() - keep)
	}
	return len(p), nil
}

// crash returns the line that reports a crash of the kernel, otherwise "". Stalls do not count: a busy machine makes an emulated CPU stall.
func (c *console) crash() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := regexp.MustCompile(`(?m)^.*(Kernel panic|Oops|kernel BUG at|BUG: unable to handle|general protection fault|Unable to handle kernel).*$`)
	return strings.TrimSpace(string(bad.Find(c.text.Bytes())))
}

// impossibleFlags returns the EFLAGS of a crash if no CPU has them, otherwise "". Bits from 22 on are always 0 (Intel SDM, volume 1, 3.4.3).
// QEMU 7.2 did this once, on 6.12-full, at the end of a branch that the kernel rewrites (kmem_cache_alloc_noprof+0x69): the flag TF was set, too.
func (c *console) impossibleFlags() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range regexp.MustCompile(`\bEFLAGS: ([0-9a-f]{8})\b`).FindAllSubmatch(c.text.Bytes(), -1) {
		if flags, _ := strconv.ParseUint(string(m[1]), 16, 32); flags >= 1<<22 {
			return string(m[1])
		}
	}
	return ""
}

// tail is the end of the console for an error message.
func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.TrimSpace(strings.ReplaceAll(c.text.String(), "\r", ""))
	if text == "" {
		return ""
	}
	return "\nend of the console:\n" + lastLines(text, 60)
}

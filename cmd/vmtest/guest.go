package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed guest/init
var guestInit []byte

//go:embed guest/start
var guestStart []byte

const (
	// guestShare is where the guest sees the folder it shares with this machine.
	guestShare = "/work-share"
	// reportDir, in the shared folder, is where vmtest and the guest exchange files.
	reportDir = ".vmtest"
	// guestBin is where the guest has the program that was brought from this
	// machine: in memory, because a probe cannot be put on a file of the share.
	guestBin  = "/run/vmtest/bin"
	guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// emptyDirs are folders of the guest that do not show this machine's files.
func emptyDirs() []string { return []string{"/tmp", "/run", "/root", "/var/tmp"} }

// A session is one run of a command in a virtual machine.
type session struct {
	opt   options
	img   image
	dir   string // temporary folder of this run
	share string // the part of dir that the guest can write
	cwd   string
	repo  string // tree that the guest must be able to read
}

// runGuest boots, runs the command and returns its status.
func runGuest(ctx context.Context, opt options, img image, p *progress, stdout, stderr io.Writer) (int, error) {
	s, err := newSession(opt, img)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(s.dir)
	outputs, err := s.writeFiles(ctx)
	if err != nil {
		return 0, err
	}
	p.printf("booting %s", img.release)
	console, err := s.boot(ctx, p, stdout, stderr)
	if ctx.Err() != nil {
		return 0, err // the user interrupted it: no explanation needed
	}
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, console.tail())
	}
	code, err := s.status(console)
	if err != nil {
		return 0, fmt.Errorf("%w%s", err, console.tail())
	}
	if code != 0 {
		p.printf("exit status %d", code)
	}
	return code, copyOutputs(outputs)
}

func newSession(opt options, img image) (*session, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vmtest-")
	if err != nil {
		return nil, err
	}
	s := &session{opt: opt, img: img, dir: dir, share: filepath.Join(dir, "share"), cwd: cwd, repo: treeOf(cwd)}
	if err := os.MkdirAll(filepath.Join(s.share, reportDir), 0o755); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// treeOf returns the repository or module that dir is in, otherwise dir.
func treeOf(dir string) string {
	for _, mark := range []string{".git", "go.mod"} {
		for d := dir; ; d = filepath.Dir(d) {
			if exists(filepath.Join(d, mark)) {
				return d
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return dir
}

// writeFiles makes everything that QEMU is started with and returns what to
// copy back after the run.
func (s *session) writeFiles(ctx context.Context) ([]outputFile, error) {
	args, outputs, err := mapOutputs(s.opt.command, s.cwd, s.share)
	if err != nil {
		return nil, err
	}
	if args[0], err = s.bringProgram(args[0]); err != nil {
		return nil, err
	}
	if s.img.mlx5 != "" {
		for _, b := range mlx5Builds {
			if err := copyFile(filepath.Join(s.share, b.file), filepath.Join(s.img.mlx5, b.file)); err != nil {
				return nil, err
			}
		}
	}
	var files []string
	for _, d := range s.disks() {
		files = append(files, d.path)
	}
	if s.opt.nvme {
		files = append(files, s.moreDisks()...)
	}
	for _, file := range files {
		if err := makeDisk(file); err != nil {
			return nil, err
		}
	}
	return outputs, s.writeInitramfs(ctx, args)
}

// bringProgram copies a program that the guest would not see, such as a test binary below /tmp, and returns the path to run.
func (s *session) bringProgram(name string) (string, error) {
	if !strings.Contains(name, "/") {
		return name, nil // found by PATH in the guest
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if s.visible(path) {
		return name, nil
	}
	bin := filepath.Join(s.share, reportDir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	if err := copyFile(filepath.Join(bin, filepath.Base(path)), path); err != nil {
		return "", fmt.Errorf("bring the command into the virtual machine: %w", err)
	}
	return filepath.Join(guestBin, filepath.Base(path)), nil
}

// visible reports whether the guest has this machine's file at path.
func (s *session) visible(path string) bool {
	return within(path, s.repo) || !s.opt.kernel.foreign() && !hidden(path)
}

func hidden(path string) bool {
	return slices.ContainsFunc(emptyDirs(), func(dir string) bool { return within(path, dir) })
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// config is read by the guest's scripts.
func (s *session) config() string {
	userland, keep := "host", ""
	if s.opt.kernel.foreign() {
		userland = "busybox"
	}
	if hidden(s.repo) {
		keep = s.repo
	}
	values := [][2]string{
		{"USERLAND", userland},
		{"RELEASE", s.img.release},
		{"MODULES", s.img.modulesDir()},
		{"SHARE", guestShare},
		{"EMPTY", strings.Join(emptyDirs(), " ")},
		{"REPO", s.repo},
		{"KEEP", keep},
		{"BARE", shellBool(s.opt.bare)},
		{"MORE_NVME", shellBool(s.opt.nvme)},
		{"HIDE_BTF", shellBool(s.opt.hideBTF)},
	}
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "%s=%s\n", v[0], shellQuote(v[1]))
	}
	return b.String()
}

func shellBool(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// script runs the command in the guest.
func (s *session) script(args []string) string {
	words := []string{"exec", "env", "-i"}
	for _, word := range slices.Concat(s.environ(os.Environ()), args) {
		words = append(words, shellQuote(word))
	}
	return fmt.Sprintf("#!/bin/sh\ncd %s || exit %d\n%s\n", shellQuote(s.cwd), exitFailed, strings.Join(words, " "))
}

// environ returns the environment of the command: a clean start, and the variables for the tests.
func (s *session) environ(host []string) []string {
	env := []string{
		"PATH=" + guestPath,
		"HOME=/root",
		"USER=root",
		"LOGNAME=root",
		"SHELL=/bin/sh",
		"TMPDIR=/tmp",
	}
	for _, kv := range host {
		if name, _, _ := strings.Cut(kv, "="); passed(name) {
			env = append(env, kv)
		}
	}
	env = append(env, "VMTEST_KERNEL="+s.opt.kernel.name, "VMTEST_DIR="+guestShare)
	if s.img.mlx5 != "" {
		env = append(env, "VMTEST_MLX5_KO="+filepath.Join(guestShare, mlx5File))
	}
	return env
}

func passed(name string) bool {
	switch name {
	case "GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GORACE", "LANG", "TERM", "NO_COLOR", "TZ", "COLUMNS":
		return true
	case "VMTEST_CACHE", "VMTEST_MIRROR", "VMTEST_ACCEL":
		return false
	}
	for _, prefix := range []string{"LC_", "TRACE_", "VMTEST_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// errEmulator is for a crash that no real CPU can cause.
var errEmulator = errors.New("the emulator failed")

// status reads how the command ended.
func (s *session) status(c *console) (int, error) {
	if cause, err := os.ReadFile(filepath.Join(s.share, reportDir, "failed")); err == nil {
		return 0, fmt.Errorf("setup of the virtual machine: %s", strings.TrimSpace(string(cause)))
	}
	if flags := c.impossibleFlags(); flags != "" {
		return 0, fmt.Errorf("%w: the kernel crashed with EFLAGS %s, which no CPU has", errEmulator, flags)
	}
	if line := c.crash(); line != "" {
		return 0, fmt.Errorf("the kernel crashed: %s", line)
	}
	text, err := os.ReadFile(filepath.Join(s.share, reportDir, "status"))
	if err != nil {
		return 0, errors.New("the virtual machine ended before the command did")
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("exit status of the command: %w", err)
	}
	return code, nil
}

func copyFile(target, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

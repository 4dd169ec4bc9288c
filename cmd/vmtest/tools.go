package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// A tool is a program of this machine and the Debian package that brings it.
type tool struct{ program, pkg string }

// neededTools lists what a run needs. Once the kernel is in the cache, it does not need apt and similar tools.
func neededTools(opt options, cached bool) []tool {
	tools := []tool{{"modprobe", "kmod"}}
	if !cached {
		tools = append(tools, tool{"apt-get", "apt"}, tool{"depmod", "kmod"}, tool{"dpkg", "dpkg"}, tool{"xz", "xz-utils"})
	}
	if opt.kernel.foreign() {
		return append(tools, tool{"qemu-system-aarch64", "qemu-system-arm"})
	}
	tools = append(tools, tool{"busybox", "busybox-static"}, tool{"qemu-system-x86_64", "qemu-system-x86"})
	if opt.mlx5 {
		tools = append(tools, tool{"chroot", "coreutils"}, tool{"unshare", "util-linux"})
	}
	if !opt.bare {
		tools = append(tools, tool{"rdma", "iproute2"})
	}
	return tools
}

// checkTools names all missing packages at once.
func checkTools(tools []tool) error {
	var programs, pkgs []string
	for _, t := range tools {
		if _, err := lookPath(t.program); err == nil {
			continue
		}
		programs = append(programs, t.program)
		if !slices.Contains(pkgs, t.pkg) {
			pkgs = append(pkgs, t.pkg)
		}
	}
	if len(programs) > 0 {
		return fmt.Errorf("programs not found: %s; install with: apt-get install %s",
			strings.Join(programs, " "), strings.Join(pkgs, " "))
	}
	return nil
}

// lookPath also searches the folders of system tools: a user's PATH often lacks them.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path, nil
		}
	}
	return "", err
}

// staticBusybox returns this machine's busybox, which must run without libraries.
func staticBusybox() (string, error) {
	path, err := lookPath("busybox")
	if err != nil {
		return "", err
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read busybox: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not static; install busybox-static", path)
		}
	}
	return path, nil
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path, err := lookPath(name)
	if err != nil {
		path = name // its Start reports the error
	}
	return exec.CommandContext(ctx, path, args...)
}

// runTool runs a program; the error has the end of what it printed.
func runTool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := command(ctx, name, args...)
	var stdout, all bytes.Buffer
	cmd.Stdout = &teeWriter{&stdout, &all}
	cmd.Stderr = &all
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w\n%s", name, err, lastLines(all.String(), 15))
	}
	return stdout.String(), nil
}

// output runs a program; if it fails, the result is "".
func output(ctx context.Context, name string, args ...string) string {
	out, err := command(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

type teeWriter struct{ a, b *bytes.Buffer }

func (t *teeWriter) Write(p []byte) (int, error) {
	t.a.Write(p)
	return t.b.Write(p)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

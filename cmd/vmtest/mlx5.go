package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

//go:embed mlx5/mlx5_ib.c
var mlx5Source []byte

//go:embed mlx5/Kbuild
var mlx5Kbuild []byte

// mlx5File is the name of the stand-in module in the shared folder.
const mlx5File = "mlx5_ib.ko"

// prepareMlx5 returns the stand-in module for a kernel and builds it first if
// the cache has none of this source.
func prepareMlx5(ctx context.Context, dir string, k kernel, img image, p *progress) (string, error) {
	hash := sha256.Sum256(slices.Concat(mlx5Source, mlx5Kbuild, []byte(img.release)))
	target := filepath.Join(dir, fmt.Sprintf("mlx5-%x", hash[:6]))
	err := once(ctx, dir, target, p, func(tmp string) error {
		return buildMlx5(ctx, tmp, k, img.release, p)
	})
	if err != nil {
		return "", fmt.Errorf("mlx5_ib stand-in: %w", err)
	}
	return filepath.Join(target, mlx5File), nil
}

// buildMlx5 builds in a root file system of the kernel's own suite: the kernel's
// build tools are programs that need that suite's libraries and compiler.
func buildMlx5(ctx context.Context, dir string, k kernel, release string, p *progress) error {
	if os.Geteuid() != 0 {
		return errors.New("building it uses chroot; run as root")
	}
	work := filepath.Join(dir, "work")
	a, err := openSuite(ctx, filepath.Join(work, "apt"), k, p)
	if err != nil {
		return err
	}
	p.printf("downloading kernel headers and compiler")
	root := filepath.Join(work, "root")
	if err := makeRoot(root); err != nil {
		return err
	}
	if err := a.unpackWithDependencies(ctx, root, buildPackages(release)...); err != nil {
		return fmt.Errorf("%w\n(if the suite has moved on to a newer kernel, remove %s)", err, filepath.Dir(dir))
	}
	p.printf("building the mlx5_ib stand-in")
	if err := compileModule(ctx, root, release); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(dir, mlx5File), filepath.Join(root, "build", mlx5File)); err != nil {
		return err
	}
	return os.RemoveAll(work)
}

// buildPackages are the headers and what their makefiles run; the headers bring
// the compiler.
func buildPackages(release string) []string {
	return []string{
		"linux-headers-" + release, "make", "dash", "bash", "coreutils", "sed", "grep", "mawk",
		"findutils", "diffutils",
	}
}

// makeRoot makes a root file system ready for unpacking packages into it. No
// package script is run, so what those would set up is made here.
func makeRoot(root string) error {
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "tmp", "build"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	links := [][2]string{
		{"usr/bin", "bin"}, {"usr/sbin", "sbin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"},
		{"dash", "usr/bin/sh"}, {"mawk", "usr/bin/awk"},
	}
	for _, l := range links {
		if err := os.Symlink(l[0], filepath.Join(root, l[1])); err != nil {
			return err
		}
	}
	return nil
}

// chrootScript runs a program in the root file system $1. Its mounts end with
// it because they are in a namespace of its own.
const chrootScript = `mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec chroot "$@"`

func compileModule(ctx context.Context, root, release string) error {
	for name, data := range map[string][]byte{"mlx5_ib.c": mlx5Source, "Kbuild": mlx5Kbuild} {
		if err := os.WriteFile(filepath.Join(root, "build", name), data, 0o644); err != nil {
			return err
		}
	}
	_, err := runTool(ctx, "unshare", "--mount", "sh", "-ec", chrootScript, "sh", root,
		"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "make", "-C", "/usr/src/linux-headers-"+release, "M=/build", "modules")
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "build", mlx5File)); errors.Is(err, fs.ErrNotExist) {
		return errors.New("compile: make succeeded but left no module")
	}
	return nil
}

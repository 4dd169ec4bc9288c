package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed mlx5
var mlx5Sources embed.FS

// mlx5File is the name of the stand-in for the driver in the shared folder.
const mlx5File = "mlx5_ib.ko"

// mlx5Builds are the stand-in modules: their names in the shared folder, the
// name that they are built under, and flags for the compiler.
var mlx5Builds = []struct{ file, module, flags string }{
	{mlx5File, "mlx5_ib.ko", ""},
	{"mlx5_ib_other.ko", "mlx5_ib.ko", "-DOTHER_SIGNATURES"},
	{"mlx5_core.ko", "mlx5_core.ko", ""},
}

// prepareMlx5 returns the folder of the stand-in modules for a kernel and builds
// them first if the cache has none of these sources.
func prepareMlx5(ctx context.Context, dir string, k kernel, img image, p *progress) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, img.release, mlx5Builds)
	sources, err := mlx5Sources.ReadDir("mlx5")
	if err != nil {
		return "", err
	}
	for _, f := range sources {
		data, err := mlx5Sources.ReadFile("mlx5/" + f.Name())
		if err != nil {
			return "", err
		}
		hash.Write(data)
	}
	target := filepath.Join(dir, fmt.Sprintf("mlx5-%x", hash.Sum(nil)[:6]))
	err = once(ctx, dir, target, p, func(tmp string) error {
		return buildMlx5(ctx, tmp, k, img.release, p)
	})
	if err != nil {
		return "", fmt.Errorf("mlx5 stand-ins: %w", err)
	}
	return target, nil
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
	p.printf("building the mlx5 stand-ins")
	for _, b := range mlx5Builds {
		if err := compileModules(ctx, root, release, b.flags); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(dir, b.file), filepath.Join(root, "build", b.module)); err != nil {
			return fmt.Errorf("compile: make succeeded but left no module: %w", err)
		}
	}
	return os.RemoveAll(work)
}

// buildPackages are the headers and the tools that their makefiles run; the headers depend on the compiler.
func buildPackages(release string) []string {
	return []string{
		"linux-headers-" + release, "make", "dash", "bash", "coreutils", "sed", "grep", "mawk",
		"findutils", "diffutils",
	}
}

// makeRoot prepares a root file system for unpacking packages into it. No package script is run, so it makes what those would set up.
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

// chrootScript runs a program in the root file system $1. Its mounts end with it because they are in a separate namespace.
const chrootScript = `mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec chroot "$@"`

// compileModules leaves the modules in the folder build, and removes modules of an earlier call.
func compileModules(ctx context.Context, root, release, flags string) error {
	build := filepath.Join(root, "build")
	if err := os.RemoveAll(build); err != nil {
		return err
	}
	sources, err := fs.Sub(mlx5Sources, "mlx5")
	if err != nil {
		return err
	}
	if err := os.CopyFS(build, sources); err != nil {
		return err
	}
	_, err = runTool(ctx, "unshare", "--mount", "sh", "-ec", chrootScript, "sh", root,
		"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "make", "-C", "/usr/src/linux-headers-"+release, "M=/build", "STANDIN_FLAGS="+flags, "modules")
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	return nil
}

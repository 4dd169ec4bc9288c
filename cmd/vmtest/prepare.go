package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An image is a kernel that is ready to boot.
type image struct {
	dir     string // has vmlinuz and lib/modules/<release>
	release string // what uname -r prints
	busybox string // static, of the kernel's architecture
	mlx5    string // folder of stand-in modules, if asked for
}

func (img image) vmlinuz() string    { return filepath.Join(img.dir, "vmlinuz") }
func (img image) modulesDir() string { return filepath.Join(img.dir, "lib/modules", img.release) }

// bootDir is the part of a kernel's cache folder that an image is made of.
func bootDir(dir string) string { return filepath.Join(dir, "boot") }

// prepare returns the cached kernel and fetches it first if there is none.
func prepare(ctx context.Context, dir string, k kernel, p *progress) (image, error) {
	boot := bootDir(dir)
	err := once(ctx, dir, boot, p, func(tmp string) error { return fetchKernel(ctx, tmp, k, p) })
	if err != nil {
		return image{}, err
	}
	return openImage(boot, k)
}

func openImage(boot string, k kernel) (image, error) {
	img := image{dir: boot}
	release, err := os.ReadFile(filepath.Join(boot, "release"))
	if err != nil {
		return img, fmt.Errorf("cached kernel is damaged: %w; remove %s", err, boot)
	}
	img.release = string(release)
	if k.foreign() {
		img.busybox = filepath.Join(boot, "busybox")
		return img, nil
	}
	img.busybox, err = staticBusybox()
	return img, err
}

// once lets one process at a time build target in a temporary folder of dir,
// which becomes target only when it is complete.
func once(ctx context.Context, dir, target string, p *progress, build func(tmp string) error) error {
	if exists(target) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cache folder: %w; set VMTEST_CACHE", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"), p)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(target) {
		return nil // another process built it while this one waited
	}
	tmp, err := freshTemp(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := build(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, target)
}

// freshTemp also removes what an interrupted process left: the holder of the lock is alone.
func freshTemp(dir string) (string, error) {
	old, err := filepath.Glob(filepath.Join(dir, "tmp-*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	tmp, err := os.MkdirTemp(dir, "tmp-")
	if err != nil {
		return "", err
	}
	return tmp, os.Chmod(tmp, 0o755)
}

// lock waits for other processes; the kernel frees the lock when its owner dies.
func lock(ctx context.Context, path string, p *progress) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if first {
			p.printf("waiting for another vmtest that prepares this kernel")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fetchKernel fills dir with vmlinuz, release and lib/modules.
func fetchKernel(ctx context.Context, dir string, k kernel, p *progress) error {
	work := filepath.Join(dir, "work")
	a, err := openSuite(ctx, filepath.Join(work, "apt"), k, p)
	if err != nil {
		return err
	}
	pkgs, err := imagePackages(ctx, a, k)
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	if k.foreign() {
		pkgs = append(pkgs, "busybox-static")
	}
	p.printf("downloading %s", strings.Join(pkgs, " "))
	if err := a.unpack(ctx, root, pkgs...); err != nil {
		return err
	}
	p.printf("unpacking modules")
	if err := arrange(ctx, root, dir, k); err != nil {
		return fmt.Errorf("arrange files of %s: %w", pkgs[0], err)
	}
	return os.RemoveAll(work)
}

func openSuite(ctx context.Context, dir string, k kernel, p *progress) (apt, error) {
	mirror, err := debianMirror(ctx, os.Getenv)
	if err != nil {
		return apt{}, err
	}
	a, err := newApt(dir, mirror, k.suite, k.arch)
	if err != nil {
		return apt{}, err
	}
	p.printf("reading package index of %s", k.suite)
	return a, a.update(ctx)
}

func imagePackages(ctx context.Context, a apt, k kernel) ([]string, error) {
	names, err := a.names(ctx, "linux-image-")
	if err != nil {
		return nil, err
	}
	name, err := newestImage(names, k)
	if err != nil {
		return nil, err
	}
	depends, err := a.depends(ctx, name)
	if err != nil {
		return nil, err
	}
	return append([]string{name}, filePackages(depends)...), nil
}

// arrange moves the files of unpacked packages to where an image has them.
func arrange(ctx context.Context, root, dir string, k kernel) error {
	modules, err := oneOf(root, "lib/modules/*", "usr/lib/modules/*")
	if err != nil {
		return err
	}
	release := filepath.Base(modules)
	vmlinuz, err := oneOf(root, "boot/vmlinuz-*", "lib/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz")
	if err != nil {
		return err
	}
	if err := os.Rename(vmlinuz, filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib/modules"), 0o755); err != nil {
		return err
	}
	if err := os.Rename(modules, filepath.Join(dir, "lib/modules", release)); err != nil {
		return err
	}
	// kmod may have been built to look below /usr.
	if err := os.Symlink(".", filepath.Join(dir, "usr")); err != nil {
		return err
	}
	if err := indexModules(ctx, dir, release); err != nil {
		return err
	}
	if k.foreign() {
		if err := moveBusybox(root, dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644)
}

func moveBusybox(root, dir string) error {
	busybox, err := oneOf(root, "bin/busybox", "usr/bin/busybox")
	if err != nil {
		return err
	}
	return os.Rename(busybox, filepath.Join(dir, "busybox"))
}

func oneOf(root string, patterns ...string) (string, error) {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("packages have no %s", strings.Join(patterns, " or "))
}

// indexModules uncompresses the modules (an emulated CPU takes long for it) and
// writes the dependency index that installing the package would write.
func indexModules(ctx context.Context, dir, release string) error {
	packed, err := filesWithSuffix(filepath.Join(dir, "lib/modules", release), ".ko.xz")
	if err != nil {
		return err
	}
	if err := unxz(ctx, packed); err != nil {
		return fmt.Errorf("uncompress modules: %w", err)
	}
	_, err = runTool(ctx, "depmod", "-b", dir, release)
	return err
}

func filesWithSuffix(root, suffix string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, suffix) {
			out = append(out, path)
		}
		return err
	})
	return out, err
}

// unxz uses two processes, with no more files each than a command line holds.
func unxz(ctx context.Context, files []string) error {
	const batch = 250
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		slot = make(chan struct{}, 2)
	)
	for len(files) > 0 {
		n := min(batch, len(files))
		args := append([]string{"-d", "--"}, files[:n]...)
		files = files[n:]
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			if _, err := runTool(ctx, "xz", args...); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

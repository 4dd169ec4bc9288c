// Vmtest boots a Debian kernel in QEMU and runs a command in it, as root, on
// top of a private copy of this machine's file system. It serves as the runner
// of tests which need a real kernel:
//
//	go test -exec "vmtest -kernel 6.12" ./probes
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// exitFailed is the exit status for every failure of vmtest itself. It differs from usual statuses of the command (env, timeout and
// container tools use the same value for this purpose).
const exitFailed = 125

func main() {
	ctx, stop := signal.NotifyContext(context.Background(),
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, err := parseArgs(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return fail(stderr, err)
	case opt.list:
		listKernels(stdout)
		return 0
	}
	p := &progress{w: stderr, kernel: opt.kernel.name, start: time.Now()}
	code, err := runKernel(ctx, opt, p, stdout, stderr)
	if errors.Is(err, errEmulator) {
		p.printf("%v\nbooting once more", err)
		code, err = runKernel(ctx, opt, p, stdout, stderr)
	}
	if err != nil {
		return fail(stderr, fmt.Errorf("%s: %w", opt.kernel.name, err))
	}
	return code
}

func runKernel(ctx context.Context, opt options, p *progress, stdout, stderr io.Writer) (int, error) {
	dir, err := cacheDir(os.Getenv, opt.kernel)
	if err != nil {
		return 0, err
	}
	if err := checkTools(neededTools(opt, exists(bootDir(dir)))); err != nil {
		return 0, err
	}
	img, err := prepare(ctx, dir, opt.kernel, p)
	if err != nil {
		return 0, err
	}
	if opt.mlx5 {
		if img.mlx5, err = prepareMlx5(ctx, dir, opt.kernel, img, p); err != nil {
			return 0, err
		}
	}
	if opt.prepare {
		p.printf("%s is ready in %s (remove that folder to fetch a newer one)", img.release, dir)
		return 0, nil
	}
	return runGuest(ctx, opt, img, p, stdout, stderr)
}

func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "vmtest: %v\n", err)
	return exitFailed
}

// options is the parsed command line.
type options struct {
	kernel  kernel
	timeout time.Duration
	verbose bool
	hideBTF bool
	bare    bool
	mlx5    bool
	nvme    bool
	append  string
	prepare bool
	list    bool
	command []string
}

const usageText = `usage: vmtest -kernel K [flags] [--] COMMAND [ARGS...]
       vmtest -kernel K -prepare
       vmtest -list

Boots the Debian kernel K in QEMU and runs COMMAND in it as root, in the same
working directory, on a view of this machine's files whose changes are dropped
at the end. Exits with the status of COMMAND, or with 125 if the virtual machine
failed, and fits "go test -exec". /tmp, /run, /root and /var/tmp start out empty,
except for the repository if it is below one of them. The machine has 2 CPUs, an
NVMe controller with namespaces of 512 and 4096 byte blocks (/dev/nvme0n1, n2) and
a software RDMA device rxe0 on 10.9.0.1. On arm64 there is only busybox, no RDMA,
and COMMAND must be a static program.

Flags:
`

const usageEnv = `
Environment: VMTEST_CACHE (folder for kernels), VMTEST_MIRROR (URL of a Debian
mirror), VMTEST_ACCEL (value for QEMU's -accel). COMMAND sees VMTEST_KERNEL,
VMTEST_DIR (a folder shared with this machine) and, with -mlx5, VMTEST_MLX5_KO.
`

func parseArgs(args []string, stderr io.Writer) (options, error) {
	var opt options
	fs := flag.NewFlagSet("vmtest", flag.ContinueOnError)
	fs.SetOutput(stderr)
	name := fs.String("kernel", "", "kernel to boot: "+strings.Join(kernelNames(), ", "))
	fs.DurationVar(&opt.timeout, "timeout", 10*time.Minute, "limit for boot and COMMAND together")
	fs.BoolVar(&opt.verbose, "v", false, "show the console of the virtual machine")
	fs.BoolVar(&opt.hideBTF, "hide-btf", false, "hide the kernel's type information, as on kernels without it")
	fs.BoolVar(&opt.bare, "bare", false, "do not load NVMe and RDMA modules nor set up an RDMA device")
	fs.BoolVar(&opt.mlx5, "mlx5", false, "build the mlx5 stand-in modules and export VMTEST_MLX5_KO, the path of mlx5_ib.ko")
	fs.BoolVar(&opt.nvme, "nvme", false, "add NVMe controllers zoned, errors and slow, and let memory for DMA run out")
	fs.StringVar(&opt.append, "append", "", "more words for the kernel's command line")
	fs.BoolVar(&opt.prepare, "prepare", false, "only download and build what a boot needs")
	fs.BoolVar(&opt.list, "list", false, "list the kernels")
	fs.Usage = func() {
		fmt.Fprint(stderr, usageText)
		fs.PrintDefaults()
		fmt.Fprint(stderr, usageEnv)
	}
	if err := fs.Parse(args); err != nil {
		return opt, err
	}
	opt.command = fs.Args()
	if opt.list {
		return opt, nil
	}
	var err error
	if opt.kernel, err = findKernel(*name); err != nil {
		return opt, err
	}
	return opt, opt.check()
}

func (opt options) check() error {
	switch {
	case opt.mlx5 && opt.kernel.foreign():
		return fmt.Errorf("-mlx5: not available for %s", opt.kernel.name)
	case opt.nvme && opt.kernel.foreign():
		return fmt.Errorf("-nvme: not available for %s", opt.kernel.name)
	case opt.prepare && len(opt.command) > 0:
		return fmt.Errorf("-prepare: takes no command, got %q", opt.command[0])
	case !opt.prepare && len(opt.command) == 0:
		return errors.New("no command given; see vmtest -h")
	case opt.timeout <= 0:
		return fmt.Errorf("-timeout: must be positive, got %v", opt.timeout)
	}
	return nil
}

// progress reports on stderr what takes time.
type progress struct {
	w      io.Writer
	kernel string
	start  time.Time
}

func (p *progress) printf(format string, args ...any) {
	fmt.Fprintf(p.w, "vmtest: %s: [%.1fs] %s\n",
		p.kernel, time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// cacheDir is where everything of one kernel is kept between runs.
func cacheDir(getenv func(string) string, k kernel) (string, error) {
	root := getenv("VMTEST_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache folder: %w; set VMTEST_CACHE", err)
		}
		root = filepath.Join(user, "trace-vmtest")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("VMTEST_CACHE: %w", err)
	}
	return filepath.Join(root, k.folder()), nil
}

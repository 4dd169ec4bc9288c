//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Options describe what a caller will ask of a kernel, and what is known of it besides what it shows.
type Options struct {
	// BTF are files, or folders of files, with the types of modules without BTF.
	BTF []string
	// Modules whose types may be looked up.
	Modules []Module
	// Symbols returns the names that may be looked up in the kernel's symbol table.
	Symbols func() map[string]bool
	// Types returns the kernel's own types, ModuleTypes the types of a module, DescribesName whether a name is among the kernel's own types
	// and functions, Preemption how it preempts tasks, and Kprobes why it has no kprobes; nil: from the running kernel.
	Types         func() (*btf.Spec, error)
	ModuleTypes   func(name string) (*btf.Spec, error)
	DescribesName func(name string) (bool, error)
	Preemption    func() Preemption
	Kprobes       func() error
}

// Kernel is what one kernel offers. Everything is looked up on first use, and never derived from the kernel's version. Its methods may be
// called from several goroutines.
type Kernel struct {
	options    Options
	capability func() (uint64, error)
	preemption func() Preemption
	kprobes    func() error
	skips      func() bool
	guards     func() bool // tracepoints, by SRCU
	taken      atomic.Pointer[taken]
}

// taken is what needs much memory, and can be freed and read again.
type taken struct {
	given func() ([]*btf.Spec, error) // from Options.BTF
	cache *btf.Cache                  // for the library that loads programs
	types func() (*btf.Spec, error)
	// described and describedBy are types and modules without the library's index, for those who need a few types.
	described   func() (description, error)
	describedBy map[string]func() (description, error)
	symbols     func() (map[string]bool, error)
	modules     map[string]func() (*btf.Spec, error)
}

// New prepares to read the running kernel.
func New(o Options) (*Kernel, error) {
	if o.Preemption == nil {
		o.Preemption = readPreemption
	}
	if o.Kprobes == nil {
		o.Kprobes = hasKprobes
	}
	if o.DescribesName == nil {
		o.DescribesName = describesName
	}
	k := &Kernel{
		options:    o,
		capability: sync.OnceValues(effectiveCapabilities),
		preemption: sync.OnceValue(o.Preemption),
		kprobes:    sync.OnceValue(o.Kprobes),
		skips: sync.OnceValue(func() bool {
			there, err := o.DescribesName(skipCounter)
			return there && err == nil
		}),
		guards: sync.OnceValue(func() bool {
			there, err := o.DescribesName(tracepointGuard)
			return there || err != nil
		}),
	}
	k.Release()
	_, err := k.given()
	return k, err
}

// Release frees the kernel's types and symbols, tens of megabytes. They are read again when they are next needed.
func (k *Kernel) Release() {
	t := &taken{
		given:   sync.OnceValues(func() ([]*btf.Spec, error) { return readAllTypes(k.options.BTF) }),
		cache:   btf.NewCache(),
		symbols: sync.OnceValues(func() (map[string]bool, error) { return readSymbols("/proc/kallsyms", k.options.Symbols()) }),
		modules: make(map[string]func() (*btf.Spec, error)),
	}
	t.types = k.options.Types
	if t.types == nil {
		t.types = func() (*btf.Spec, error) { return kernelBTF(t.cache) }
	}
	own := sync.OnceValues(func() (*image, error) {
		if k.options.Types != nil || k.options.ModuleTypes != nil {
			return nil, errImage
		}
		return readImage(vmlinuxBTF, nil)
	})
	t.described = sync.OnceValues(func() (description, error) {
		if im, err := own(); err == nil {
			return im, nil
		}
		return indexed(t.types()) // which may be in another file
	})
	t.describedBy = make(map[string]func() (description, error))
	for _, m := range k.options.Modules {
		for _, name := range m.All() {
			t.modules[name] = sync.OnceValues(func() (*btf.Spec, error) {
				if k.options.ModuleTypes != nil {
					return k.options.ModuleTypes(name)
				}
				return loadModuleTypes(t.types, name)
			})
			t.describedBy[name] = sync.OnceValues(func() (description, error) {
				base, err := own()
				if err != nil {
					return indexed(t.modules[name]())
				}
				return readImage("/sys/kernel/btf/"+name, base)
			})
		}
	}
	k.taken.Store(t)
}

// Types returns the types that the kernel itself describes.
func (k *Kernel) Types() (*btf.Spec, error) { return k.taken.Load().types() }

// Cache has the types of the kernel for the library that loads programs.
func (k *Kernel) Cache() *btf.Cache { return k.taken.Load().cache }

func (k *Kernel) given() ([]*btf.Spec, error) { return k.taken.Load().given() }

func (k *Kernel) symbols() (map[string]bool, error) { return k.taken.Load().symbols() }

// moduleTypes returns the types that a module describes.
func (k *Kernel) moduleTypes(name string) (*btf.Spec, error) { return k.taken.Load().modules[name]() }

// Described returns nil if there are types of the kernel, its own or given ones.
func (k *Kernel) Described() error {
	_, err := k.taken.Load().described()
	given, givenErr := k.given()
	if err != nil && len(given) == 0 {
		return errors.Join(fmt.Errorf("%w (provide a file with its types: --btf FILE)", err), givenErr)
	}
	return nil
}

// ErrNoBTF means that the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF), or that this process cannot see them.
var ErrNoBTF = errors.New("this kernel shows no BTF in /sys/kernel/btf/vmlinux")

func kernelBTF(cache *btf.Cache) (*btf.Spec, error) {
	spec, err := cache.Kernel()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil, ErrNoBTF
	}
	return spec, err
}

// readAllTypes reads files of types, and folders of them.
func readAllTypes(paths []string) ([]*btf.Spec, error) {
	var all []*btf.Spec
	for _, path := range paths {
		specs, err := readTypes(path)
		if err != nil {
			return nil, err
		}
		all = append(all, specs...)
	}
	return all, nil
}

// readTypes reads a file of types, or all the files in a folder.
func readTypes(path string) ([]*btf.Spec, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("types: %w", err)
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*")); err != nil {
			return nil, fmt.Errorf("types: %w", err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("types: no files in %s", path)
		}
	}
	var specs []*btf.Spec
	left := int64(maxTypes)
	for _, file := range files {
		spec, size, err := loadTypes(file, left)
		left -= size
		if err != nil {
			return nil, fmt.Errorf("types: %s: %w (expected BTF, or an ELF file with a .BTF section; pahole --btf_encode_detached makes one)", file, err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// maxTypes bounds the bytes of all files of types: a kernel with all its modules has 30 MB of them.
const maxTypes = 256 << 20

// loadTypes reads a file of types, of at most so many bytes. It may come from anywhere, and the library may panic on one that is damaged.
func loadTypes(name string, most int64) (spec *btf.Spec, size int64, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would wait for a writer
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, errors.New("not a regular file")
	case info.Size() > most:
		return nil, 0, fmt.Errorf("files of types may have %d MiB in all", maxTypes>>20)
	}
	spec, err = parseTypes(f)
	return spec, info.Size(), err
}

// parseTypes parses BTF, or the .BTF of an ELF file.
func parseTypes(in io.ReaderAt) (spec *btf.Spec, err error) {
	defer func() {
		if r := recover(); r != nil {
			spec, err = nil, fmt.Errorf("damaged: %v", r)
		}
	}()
	return btf.LoadSpecFromReader(in)
}

// loadModuleTypes reads the BTF of one module only: another module's BTF, even a broken one, does not matter.
func loadModuleTypes(kernelTypes func() (*btf.Spec, error), name string) (*btf.Spec, error) {
	base, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/sys/kernel/btf/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	spec, err := btf.LoadSplitSpecFromReader(f, base)
	if err != nil {
		return nil, fmt.Errorf("BTF of module %s: %w", name, err)
	}
	return spec, nil
}

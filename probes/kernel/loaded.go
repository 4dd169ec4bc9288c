//go:build linux

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Version returns what uname -r prints.
func Version() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// Explain returns why something of the module is missing: usually the module is not loaded.
func (m Module) Explain(err error) error {
	if !m.loaded() {
		return fmt.Errorf("module %s is %w (%s)", m.Name, ErrNotLoaded, m.Load)
	}
	return err
}

// loaded reports whether a module is loaded. A built-in one need not be visible here.
func (m Module) loaded() bool {
	if m.Name == "" {
		return true
	}
	_, err := os.Stat("/sys/module/" + m.Name)
	return err == nil
}

// builtIn reports whether the module is part of the kernel image. /sys shows it then if it has parameters, but without the state of a
// loaded one (mod_sysfs_setup, kernel/module/sysfs.c); otherwise the kernel's list of built-in modules has it.
func (m Module) builtIn() bool {
	if m.Name == "" {
		return false
	}
	if m.loaded() {
		_, err := os.Stat("/sys/module/" + m.Name + "/initstate")
		return errors.Is(err, os.ErrNotExist)
	}
	release, err := Version()
	if err != nil {
		return false
	}
	list, err := os.ReadFile("/lib/modules/" + release + "/modules.builtin")
	return err == nil && bytes.Contains(list, []byte("/"+m.Name+".ko\n"))
}

// outOfTree reports whether a module was not built with its kernel: then the types of the same name in vmlinux are not its own.
func (m Module) outOfTree() bool {
	taint, err := os.ReadFile("/sys/module/" + m.Name + "/taint")
	return err == nil && bytes.ContainsRune(taint, 'O')
}

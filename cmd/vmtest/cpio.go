package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// A cpioWriter writes the "newc" archive format that the kernel unpacks as its
// first root file system. Parent folders are added as needed.
type cpioWriter struct {
	w    *bufio.Writer
	ino  int
	made map[string]bool
	err  error
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

func newCPIO(w io.Writer) *cpioWriter {
	return &cpioWriter{w: bufio.NewWriter(w), made: map[string]bool{".": true}}
}

// addFile adds a file from memory; the first error is kept until close.
func (c *cpioWriter) addFile(name string, perm os.FileMode, data []byte) {
	c.addParents(name)
	c.entry(name, cpioFile|int(perm.Perm()), data)
}

// addHostFile adds a file of this machine under another name.
func (c *cpioWriter) addHostFile(name, source string, perm os.FileMode) {
	data, err := os.ReadFile(source)
	if err != nil {
		c.fail(err)
		return
	}
	c.addFile(name, perm, data)
}

func (c *cpioWriter) addDir(name string) {
	if c.made[name] {
		return
	}
	c.addParents(name)
	c.made[name] = true
	c.entry(name, cpioDir|0o755, nil)
}

func (c *cpioWriter) addParents(name string) {
	if dir := path.Dir(name); !c.made[dir] {
		c.addDir(dir)
	}
}

func (c *cpioWriter) close() error {
	c.ino = 0
	c.entry("TRAILER!!!", 0, nil)
	c.fail(c.w.Flush())
	return c.err
}

func (c *cpioWriter) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// entry writes header, name and data, the last two padded so that what follows
// starts at a multiple of four.
func (c *cpioWriter) entry(name string, mode int, data []byte) {
	const headerLen = 110
	c.ino++
	nameLen := len(name) + 1
	_, err := fmt.Fprintf(c.w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, nameLen, 0)
	c.fail(err)
	c.writePadded(name+"\x00", headerLen+nameLen)
	c.writePadded(string(data), len(data))
}

func (c *cpioWriter) writePadded(s string, length int) {
	_, err := c.w.WriteString(s + strings.Repeat("\x00", (4-length%4)%4))
	c.fail(err)
}

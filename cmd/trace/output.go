package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// flushDelay is how long an event may wait in the buffer: short for a reader, long for a stream of a million events a second.
const flushDelay = 50 * time.Millisecond

// output is the buffered way of data to standard output or a file.
type output struct {
	name string   // for errors
	file *os.File // what the data is written to, or nil if it is no file

	mu     sync.Mutex
	buf    *bufio.Writer
	closer io.Closer
	timer  *time.Timer // flushes the buffer; armed while there is something in it
}

// openOutput returns the output to the file called name, or to stdout if name is empty.
func openOutput(name string, stdout io.Writer) (*output, error) {
	o := &output{name: "standard output"}
	o.file, _ = stdout.(*os.File)
	w := stdout
	if name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return nil, fmt.Errorf("output file: %w", err)
		}
		o.name, o.file, o.closer, w = name, f, f, f
	}
	o.buf = bufio.NewWriterSize(w, 64<<10)
	o.timer = time.AfterFunc(time.Hour, func() { o.flush() })
	o.timer.Stop()
	return o, nil
}

// Write buffers p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Buffered() == 0 {
		o.timer.Reset(flushDelay)
	}
	n, err := o.buf.Write(p)
	return n, o.wrap(err)
}

// flush writes what is buffered.
func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrap(o.buf.Flush())
}

// Close writes what is buffered. It does not close standard output.
func (o *output) Close() error {
	o.timer.Stop()
	err := o.flush()
	if o.closer != nil {
		err = errors.Join(err, o.wrap(o.closer.Close()))
	}
	return err
}

func (o *output) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write to %s: %w", o.name, err)
}

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// flushDelay is how long an event may stay in the buffer: short for a reader, long for a stream of a million events a second.
const flushDelay = 50 * time.Millisecond

// Stream is buffered output to standard output or a file.
type Stream struct {
	name string   // for errors
	file *os.File // what the data is written to, or nil if it is not a file

	mu       sync.Mutex
	replaced *replacing // nil for standard output
	under    io.Writer
	buf      *bufio.Writer
	timer    *time.Timer // flushes the buffer; armed while the buffer is not empty
	held     bool        // what is written waits
}

// NewStream returns a stream to a file, whose contents it replaces, or to stdout if file is nil. The old contents stay until the
// first write or [Stream.begin]. An interrupt ends every wait for a reader.
func NewStream(interrupted context.Context, file *os.File, stdout io.Writer) *Stream {
	o := &Stream{name: "standard output"}
	w := stdout
	if file != nil {
		o.replaced = &replacing{file: file}
		o.name, w = file.Name(), o.replaced
	}
	o.file = FileOf(w)
	o.under = Patiently(interrupted, w)
	o.buf = bufio.NewWriterSize(o.under, 64<<10)
	o.timer = time.AfterFunc(time.Hour, func() { o.Flush() })
	o.timer.Stop()
	return o
}

// OpenForWriting opens the file called name without changing its contents. It returns nil if name is empty. It waits for a reader
// of a FIFO until ctx ends.
func OpenForWriting(ctx context.Context, name string) (*os.File, error) {
	for name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|nonBlocking, 0o644)
		switch {
		case err == nil:
			return f, nil
		case !isFIFO(name):
			return nil, fmt.Errorf("output file: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("output file: no process reads %s", name)
		case <-time.After(flushDelay):
		}
	}
	return nil, nil
}

func isFIFO(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// replacing replaces the contents of a file.
type replacing struct {
	file    *os.File
	emptied bool
}

func (r *replacing) Write(p []byte) (int, error) {
	if err := r.empty(); err != nil {
		return 0, err
	}
	return r.file.Write(p)
}

func (r *replacing) empty() error {
	if info, err := r.file.Stat(); r.emptied || err != nil || !info.Mode().IsRegular() {
		return err
	}
	r.emptied = true
	return r.file.Truncate(0)
}

func (r *replacing) Under() *os.File { return r.file }

// Write buffers p.
func (o *Stream) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Buffered() == 0 && !o.held {
		o.timer.Reset(flushDelay)
	}
	n, err := o.buf.Write(p)
	return n, o.wrap(err)
}

// begin empties the file: the program runs.
func (o *Stream) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.replaced == nil {
		return nil
	}
	return o.wrap(o.replaced.empty())
}

// hold lets what is written wait, as far as the buffer has room, until release or drop: a program that cannot be attached prints nothing.
func (o *Stream) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

func (o *Stream) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	o.timer.Reset(flushDelay)
}

// drop forgets what waits.
func (o *Stream) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		o.buf.Reset(o.under)
	}
	o.held = false
}

// Flush writes what is buffered.
func (o *Stream) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrap(o.buf.Flush())
}

// Close writes what is buffered. It does not close standard output.
func (o *Stream) Close() error {
	o.timer.Stop()
	err := o.Flush()
	if o.replaced != nil {
		err = errors.Join(err, o.wrap(o.file.Close()))
	}
	return err
}

func (o *Stream) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write to %s: %w", o.name, err)
}

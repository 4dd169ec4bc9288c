package symbols

import (
	"errors"
	"io"

	"trace/probes/proc"
)

// source reads a file in blocks. A block that does not come is given up: a file of FUSE may never answer. Pages of files are not mapped: who
// shortens the file would end this process.
type source struct {
	r    io.ReaderAt
	ask  *proc.Questions
	user uint32 // whose patience it takes
	cost *cost
	// blocks are those that were read last; next is the one to replace.
	blocks [4]block
	next   int
}

type block struct {
	at   int64
	data []byte
}

const (
	blockSize  = 64 << 10
	blockSteps = 4 << 10 // to read one
)

// ReadAt reads a part of the file.
func (s *source) ReadAt(p []byte, at int64) (n int, err error) {
	if at < 0 {
		return 0, errors.New("negative offset")
	}
	for n < len(p) {
		data, err := s.block(at &^ (blockSize - 1))
		if err != nil {
			return n, err
		}
		from := at & (blockSize - 1)
		if from >= int64(len(data)) {
			return n, io.EOF
		}
		copied := copy(p[n:], data[from:])
		n, at = n+copied, at+int64(copied)
	}
	return n, nil
}

// block returns the block at an offset; it is short at the end of the file.
func (s *source) block(at int64) ([]byte, error) {
	for _, b := range s.blocks {
		if b.data != nil && b.at == at {
			return b.data, nil
		}
	}
	if err := s.cost.step(blockSteps); err != nil {
		return nil, err
	}
	b := &s.blocks[s.next]
	s.next = (s.next + 1) % len(s.blocks)
	buffer := b.data
	b.data = nil // a read that is given up still writes to it
	if cap(buffer) < blockSize {
		buffer = make([]byte, blockSize)
	}
	data, err := proc.Ask(s.ask, s.user, func() ([]byte, error) {
		n, err := s.r.ReadAt(buffer[:blockSize], at)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return buffer[:n], err
	})
	if err == nil {
		b.at, b.data = at, data
	}
	return data, err
}

// cool drops the blocks.
func (s *source) cool() { s.blocks = [4]block{} }

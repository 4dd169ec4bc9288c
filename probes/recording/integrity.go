package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// This file checks that a file has the blocks that were written, all of them, in order.

// readBlockHeader reads the header of a block, and checks its place in the file.
func (f *file) readBlockHeader() ([]byte, error) {
	header := make([]byte, blockHeader)
	if f.start.version == 1 {
		header = header[:blockHeader1]
	}
	if _, err := io.ReadFull(f.in, header); err != nil {
		return nil, f.cut(err)
	}
	if f.start.version == 1 {
		return header, nil
	}
	le := binary.LittleEndian
	if crc32.Update(f.sequence.sum, castagnoli, header[:blockFields]) != le.Uint32(header[blockFields:]) {
		return nil, &CorruptError{f.name, f.at, "the header of a block is damaged, or the block is of another recording"}
	}
	if got, want := le.Uint32(header[blockFields-4:]), f.sequence.next; got != want {
		return nil, &CorruptError{f.name, f.at, fmt.Sprintf("block %d where block %d should be: blocks are missing, doubled or in another order", got, want)}
	}
	f.sequence.next++
	return header, nil
}

// isWhole reports whether the payload is the one that was written.
func (f *file) isWhole(header []byte) bool {
	le := binary.LittleEndian
	if f.start.version == 1 {
		return blockSum1(header, f.stored) == le.Uint32(header[blockFields1:])
	}
	return crc32.Update(le.Uint32(header[blockFields:]), castagnoli, f.stored) == le.Uint32(header[blockFields+4:])
}

// isFlipped1 reports whether a bit in the length of a block is wrong, where the file seems to end within the block: then the checksum is
// right for the correct length. rest is what follows the header. Version 1 has one checksum for both.
func isFlipped1(header, rest []byte) bool {
	le := binary.LittleEndian
	stored := le.Uint32(header[8:])
	for bit := range 32 {
		n := stored ^ 1<<bit
		if uint64(n) > uint64(len(rest)) {
			continue
		}
		fixed := append([]byte(nil), header...)
		le.PutUint32(fixed[8:], n)
		if blockSum1(fixed, rest[:n]) == le.Uint32(header[blockFields1:]) {
			return true
		}
	}
	return false
}

// seenBlocks checks the order of blocks in a file of version 1, where blocks have no numbers.
type seenBlocks struct {
	last block
	seen map[block]bool
}

// Blocks of few events may overlap, because CPUs are not synchronized.
const (
	manyEvents = 64
	outOfStep  = 1e9 // ns
)

func (s *seenBlocks) check(b block) error {
	if s.seen == nil {
		s.seen = map[block]bool{}
	}
	before := s.last
	s.last = b
	switch early := before.first - b.last; {
	case s.seen[b]:
		return errors.New("a block is there twice")
	case before.first > b.last && (early > outOfStep || before.count >= manyEvents && b.count >= manyEvents):
		return errors.New("blocks are in another order than they were written")
	}
	s.seen[b] = true
	return nil
}

// atEnd returns an error if something follows the end block.
func (f *file) atEnd() error {
	more, err := f.in.Peek(len(magic))
	switch {
	case string(more) == magic:
		return &CorruptError{f.name, f.at, "another recording follows: keep them in separate files, and read both with -r FILE,FILE"}
	case len(more) > 0:
		return &CorruptError{f.name, f.at, "something follows the end of the recording"}
	case err != io.EOF:
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

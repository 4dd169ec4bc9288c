//go:build linux

package symbols

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trace/probes/proc"
)

// Work goes round by user: one who has thousands of pieces keeps another one waiting for one of them.
func TestTurns(t *testing.T) {
	turns := newTurns(1)
	var order []uint32
	piece := func(user uint32) func() {
		return func() {
			order = append(order, user)
			time.Sleep(time.Millisecond)
		}
	}
	refused := 0
	for range 2 * maxWaitingOne {
		if !turns.add(1000, nil, piece(1000)) {
			refused++
		}
	}
	if refused != maxWaitingOne {
		t.Errorf("%d pieces are refused, want %d", refused, maxWaitingOne)
	}
	over, end := context.WithCancel(t.Context())
	end()
	turns.add(1001, over, func() { t.Error("what nobody waits for is done") })
	turns.add(1001, nil, piece(1001))
	turns.add(1001, nil, piece(1001))
	turns.add(1001, nil, turns.end)
	turns.run()
	if first := slices.Index(order, 1001); first > 1 || len(order) > 12 { // a piece may take longer than it sleeps
		t.Errorf("the first piece of the other user is piece %d of %d", first, len(order))
	}
	if turns.add(1001, nil, func() {}) || turns.seconds() < 0.003 {
		t.Errorf("after the end: %v seconds", turns.seconds())
	}
}

// Of a part of the time one user gets a half at most.
func TestTurnsHaveALimit(t *testing.T) {
	turns, now := newTurns(0.1), time.Now()
	next := func() (users []uint32) {
		for {
			user, w, ok := turns.next(now)
			if !ok {
				return users
			}
			w.do()
			users = append(users, user)
			turns.meter(user, now).spent += burst / 4
			turns.all.spent += burst / 4
		}
	}
	for range 100 {
		turns.add(1000, nil, func() {})
	}
	if got := next(); len(got) != 2 {
		t.Errorf("%d pieces for a user who needs a quarter of the time for each", len(got))
	}
	for range 100 {
		turns.add(1001, nil, func() {})
	}
	if got := next(); !slices.Equal(got, []uint32{1001, 1001}) {
		t.Errorf("then for %d", got)
	}
	now = now.Add(100 * time.Second) // ten seconds of them
	if got := next(); len(got) != 4 {
		t.Errorf("later %d pieces", len(got))
	}
}

// A user's tables are dropped before another one's who has less, and the sum is never above the limit.
func TestBudget(t *testing.T) {
	b := newBudget(new(atomic.Int64))
	b.most = 1000
	b.kernel.Store(100)
	dropped := ""
	add := func(user uint32, name string, bytes int) *holder {
		h := &holder{user: user}
		h.drop = func() {
			dropped += name
			b.grow(h, -h.bytes)
		}
		b.use(h)
		b.grow(h, bytes)
		if now := b.loaded.Load() + 100; now > b.most {
			t.Errorf("%d bytes after %s", now, name)
		}
		return h
	}
	add(1000, "honest", 100)
	first := add(1001, "a", 300)
	add(1001, "b", 300)
	b.use(first)
	add(1001, "c", 300) // in place of b
	add(1002, "d", 300) // of another user, in place of a
	if dropped != "ba" {
		t.Errorf("dropped %q", dropped)
	}
	if len(b.all) != 3 || len(b.users) != 3 || b.loaded.Load() != 700 {
		t.Errorf("%d tables of %d users, %d bytes", len(b.all), len(b.users), b.loaded.Load())
	}
}

// A crowd of files of one user does not close another one's.
func TestFilesOfUsers(t *testing.T) {
	p := testProcesses(t)
	keep := func(user uint32, n int) {
		for i := range n {
			p.keep(&openFile{id: fileKey{file{inode: uint64(i + 1)}, fmt.Sprint(user)}, user: user, closer: io.NopCloser(nil)})
		}
	}
	keep(1000, 10)
	keep(1001, 2*maxFiles)
	if p.filesOf[1000] != 10 || p.recent.Len() != maxFiles || len(p.files) != maxFiles {
		t.Errorf("%d of 10 files are left, %d in all", p.filesOf[1000], p.recent.Len())
	}
	p.tidy()
	if len(p.forgotten) > 0 {
		t.Errorf("%d files are not closed", len(p.forgotten))
	}
}

// hanging is a file that does not answer from a block on.
type hanging struct {
	io.ReaderAt
	from int64
	on   chan struct{}
}

func (h hanging) ReadAt(p []byte, at int64) (int, error) {
	if at >= h.from {
		<-h.on
	}
	return h.ReaderAt.ReadAt(p, at)
}

// A file that does not answer is given up. It is read again when it may answer, and another user's file is read meanwhile.
func TestFileHangs(t *testing.T) {
	data, err := os.ReadFile("testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	p := testProcesses(t)
	on := make(chan struct{})
	stuck := &openFile{reader: hanging{bytes.NewReader(data), 0, on}, path: "/stuck", mark: mark{inode: 1}}
	within(t, func() {
		if im := p.load(stuck, 1000); im != nil || stuck.failed {
			t.Error("it has symbols, or was given up for good")
		}
	})
	honest := &openFile{reader: bytes.NewReader(data), path: "/honest", mark: mark{inode: 2}}
	if im := p.load(honest, 1001); im == nil {
		t.Error("the other one has no symbols")
	}
	close(on)
	for began := time.Now(); p.load(stuck, 1000) == nil; time.Sleep(proc.Patience) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("it has no symbols when it answers")
		}
	}
	if len(p.Unread()) > 0 {
		t.Errorf("%q", p.Unread())
	}
}

// A file that was shortened after its headers were read has no names, and harms nothing.
func TestShortened(t *testing.T) {
	data, err := os.ReadFile("testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	im, _, _, err := imageOf(f, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	var frame Frame
	if err := im.frame(&frame, tinyTwice, false); err != nil || frame.Function != "" {
		t.Errorf("%+v, %v", frame, err)
	}
}

// What was left of a file is left again without the work for it, and noted once, with a name that does no harm.
func TestLeft(t *testing.T) {
	p := testProcesses(t)
	parts := []part{debug("info", bytes.Repeat(bits(uint32(8), uint16(4), uint32(0), uint8(8), uint8(1)), 3<<20)), debug("abbrev", []byte{1, 0x11, 0, 0, 0, 0}), debug("line", nil)}
	parts = append(parts, symtabAt(4, symtab(symbolsOf(2, func(i int) (uint32, uint64, uint64) { return uint32(i), uint64(0x1000 * i), 0x100 }), "\x00honest\x00"))...)
	file := madeELF(parts...)
	for i := range 3 {
		of := &openFile{reader: bytes.NewReader(file), path: "/tmp/\x1b[2J", mark: mark{inode: 7}, user: 1000}
		im := p.load(of, 1000)
		if im == nil {
			t.Fatal("it has no symbols")
		}
		if i > 0 && im.cost.steps > 1<<20 {
			t.Errorf("time %d: %d steps", i, im.cost.steps)
		}
		var f Frame
		if err := im.frame(&f, 0x1000, false); err != nil || f.Function != "honest" {
			t.Errorf("%+v, %v", f, err)
		}
		p.unload(of)
	}
	lines := p.Unread()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `"/tmp/\x1b[2J": `) || p.unread.files != 1 {
		t.Errorf("%d files: %q", p.unread.files, lines)
	}
	for i := range 2 * maxLeft {
		p.unread.remember(mark{inode: uint64(100 + i)}, ofLines)
		p.unread.note(1000, fmt.Sprint(i), errors.New("x"))
	}
	p.unread.note(1001, "another", errors.New("x"))
	if lines := p.Unread(); len(p.unread.left) != maxLeft || len(lines) != maxUnreadOne+1 {
		t.Errorf("%d files, %q", len(p.unread.left), lines)
	}
	if p.budget.loaded.Load() != 0 {
		t.Errorf("%d bytes are left", p.budget.loaded.Load())
	}
}

// Mappings with long names are kept once for each name, and no more of them than are wanted.
func TestManyMappings(t *testing.T) {
	var b bytes.Buffer
	name := "/" + strings.Repeat("x", 4000)
	for i := range 65530 {
		fmt.Fprintf(&b, "%x-%x r-xp 00000000 fe:01 7 %s\n", 0x1000*i, 0x1000*i+0x1000, name)
	}
	var code []mapping
	bytes := allocated(func() { code, _ = readCode(bytes.NewReader(b.Bytes()), 1) })
	if len(code) != maxMapped || code[0].name != name {
		t.Errorf("%d mappings", len(code))
	}
	if live := len(code) * 112; bytes > uint64(maxMapped*9000+4*live) {
		t.Errorf("%d bytes were allocated", bytes)
	}
}

// Programs share what names take; the last one ends it.
func TestNamesAreShared(t *testing.T) {
	names := NewNames(1)
	none := func() (map[int]bool, error) { return nil, nil }
	a, err := names.Processes(none)
	if err != nil {
		t.Fatal(err)
	}
	b, err := names.Processes(none)
	if err != nil || a.Processes != b.Processes {
		t.Errorf("they are not shared: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Frames(t.Context(), os.Getpid(), BootClock(), []uint64{1}); !ok {
		t.Error("the end of one ended the other")
	}
	spent := names.Usage()
	if spent.Seconds == 0 || spent.Bytes == 0 || spent.Bytes > spent.Limit {
		t.Errorf("%+v", spent)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if after := names.Usage(); after.Seconds < spent.Seconds || after.Bytes != 0 {
		t.Errorf("%+v after %+v", after, spent)
	}
	if _, ok := b.Frames(t.Context(), os.Getpid(), BootClock(), []uint64{1}); ok {
		t.Error("after the end there are names")
	}
}

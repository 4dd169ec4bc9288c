package symbols

import "sync/atomic"

// maxLoaded is how many bytes the tables of all files, of the maps of compilers and of the kernel may take.
const maxLoaded = 64 << 20

// budget is the memory for the tables of all files. If there is too little, tables of the user who has the most of it go first, and of these the
// least recently used ones: they are read again when they are needed. Only one goroutine uses it, except for what is atomic.
type budget struct {
	loaded atomic.Int64
	// kernel is what the table of the kernel takes.
	kernel *atomic.Int64
	most   int64
	users  map[uint32]int
	all    map[*holder]struct{}
	clock  uint64
}

// holder is something that takes memory.
type holder struct {
	user  uint32
	bytes int
	used  uint64
	drop  func() // gives its memory back
}

func newBudget(kernel *atomic.Int64) budget {
	return budget{kernel: kernel, most: maxLoaded, users: map[uint32]int{}, all: map[*holder]struct{}{}}
}

// use notes that a holder is used now.
func (b *budget) use(h *holder) {
	b.clock++
	h.used = b.clock
}

// grow changes what a holder takes. It makes room first.
func (b *budget) grow(h *holder, bytes int) {
	for bytes > 0 && b.loaded.Load()+b.kernel.Load()+int64(bytes) > b.most {
		victim := b.victim(h)
		if victim == nil {
			break
		}
		victim.drop()
	}
	h.bytes += bytes
	b.users[h.user] += bytes
	b.loaded.Add(int64(bytes))
	if b.all[h] = struct{}{}; h.bytes == 0 {
		delete(b.all, h)
	}
	if b.users[h.user] == 0 {
		delete(b.users, h.user)
	}
}

// victim returns what is dropped next, nil if there is nothing but this holder.
func (b *budget) victim(but *holder) (v *holder) {
	for h := range b.all {
		if h == but {
			continue
		}
		if v == nil || b.users[h.user] > b.users[v.user] || b.users[h.user] == b.users[v.user] && h.used < v.used {
			v = h
		}
	}
	return v
}

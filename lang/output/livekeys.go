package output

// This file knows the keys of the live view.

// key is what was pressed: a character, or one of those that a terminal sends as a sequence.
type key rune

const (
	upKey key = -1 - iota
	downKey
	pageUpKey
	pageDownKey
	homeKey
	endKey
)

const (
	ctrlCKey         key = 3
	ctrlDKey         key = 4
	escapeKey        key = 27
	ctrlBackslashKey key = 28
)

// quitKeys end the program. What ends others by a signal comes as a character, as the terminal is raw.
var quitKeys = []key{'q', 'Q', ctrlCKey, ctrlDKey, ctrlBackslashKey}

// keyHelp is what ? shows.
var keyHelp = []string{
	"up down, k j           a key of the maps further up or down",
	"PgUp PgDn              a screen of keys further up or down",
	"Home End, g G          the first keys, the last ones",
	"s                      sort by value or by key",
	"p, space               pause, go on",
	"r                      reset: empty the maps",
	"?                      this list, which any key takes away",
	"q, Ctrl-C, Ctrl-D      quit, and print the maps",
}

// sequences are those of xterm and of what took after it, without their beginning ESC [ or ESC O.
var sequences = map[string]key{
	"A": upKey, "B": downKey, "5~": pageUpKey, "6~": pageDownKey,
	"H": homeKey, "1~": homeKey, "7~": homeKey, "F": endKey, "4~": endKey, "8~": endKey,
}

// keyDecoder makes keys of the bytes that a terminal sends.
type keyDecoder struct{ sequence []byte }

// longestSequence is more than any that is known: what is longer is none.
const longestSequence = 16

// feed takes the next byte; it returns a key if one is complete.
func (d *keyDecoder) feed(b byte) (key, bool) {
	n := len(d.sequence)
	switch {
	case n == 0 && key(b) != escapeKey:
		return key(b), true
	case n == 1 && b != '[' && b != 'O': // Escape itself, and then another key
		d.sequence = nil
		return key(b), true
	case n < 2, n < longestSequence && (b < '@' || b > '~'):
		d.sequence = append(d.sequence, b)
		return 0, false
	}
	k, known := sequences[string(d.sequence[2:])+string(b)]
	d.sequence = nil
	return k, known
}

// scroll is how far the user has gone down in maps that have more keys than there is room for. All of them move together, each to its end.
type scroll struct {
	skip int // keys
	// last is the most that makes sense, and page how many keys are seen at a time, in the frame that was drawn last.
	last, page int
}

func (s *scroll) press(k key) {
	switch k {
	case 'k', upKey:
		s.skip--
	case 'j', downKey:
		s.skip++
	case pageUpKey:
		s.skip -= s.page
	case pageDownKey:
		s.skip += s.page
	case 'g', homeKey:
		s.skip = 0
	case 'G', endKey:
		s.skip = s.last
	}
	s.skip = max(0, min(s.skip, s.last))
}

// begin forgets what the last frame was like.
func (s *scroll) begin() { s.last, s.page = 0, 0 }

// window returns how many of the keys of a map are skipped in so many lines; heights are how many lines each would take, and page is how
// many of them are seen from there on.
func (s *scroll) window(heights []int, room int, page func(from int) int) int {
	last := lastWindow(heights, room)
	if last == 0 {
		return 0
	}
	from := min(s.skip, last)
	seen := max(1, page(from))
	if s.page == 0 || seen < s.page {
		s.page = seen
	}
	s.last = max(s.last, last)
	return from
}

// lastWindow is the first key from which on all the others have room.
func lastWindow(heights []int, room int) int {
	if room < 1 {
		return 0
	}
	from := len(heights)
	for used := 0; from > 0 && used+heights[from-1] <= room; from-- {
		used += heights[from-1]
	}
	return max(0, min(from, len(heights)-1))
}

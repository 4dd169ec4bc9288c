package output

// This file decodes and describes the keys of the live view.

// key is a key: a character, or one that a terminal sends as a sequence.
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

// quitKeys end the program. Keys that usually send a signal come as characters, because the terminal is raw.
var quitKeys = []key{'q', 'Q', ctrlCKey, ctrlDKey, ctrlBackslashKey}

// keyHelp is what ? shows.
var keyHelp = []string{
	"up down, k j           scroll by a key",
	"PgUp PgDn              scroll by a screen",
	"Home End, g G          go to the first or the last keys",
	"s                      sort by value or by key",
	"p, space               pause or continue",
	"r                      reset: empty the maps",
	"?                      this list; any key closes it",
	"q, Ctrl-C, Ctrl-D      quit, and print the maps",
}

// sequences are those that xterm and similar terminals send, without the leading ESC [ or ESC O.
var sequences = map[string]key{
	"A": upKey, "B": downKey, "5~": pageUpKey, "6~": pageDownKey,
	"H": homeKey, "1~": homeKey, "7~": homeKey, "F": endKey, "4~": endKey, "8~": endKey,
}

// keyDecoder turns the bytes that a terminal sends into keys.
type keyDecoder struct{ sequence []byte }

// longestSequence is longer than any known sequence. A longer one is unknown.
const longestSequence = 16

// feed takes the next byte. It returns a key when one is complete.
func (d *keyDecoder) feed(b byte) (key, bool) {
	n := len(d.sequence)
	switch {
	case n == 0 && key(b) != escapeKey:
		return key(b), true
	case n == 1 && b != '[' && b != 'O': // the Escape key, and then another key
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

// scroll is how far the user has scrolled in maps with more keys than room. All maps move together, each to its end.
type scroll struct {
	skip int // keys
	// last is the largest useful skip, and page how many keys are visible, in the last frame.
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

// begin forgets the last frame.
func (s *scroll) begin() { s.last, s.page = 0, 0 }

// window returns how many keys of a map are skipped. heights are the lines that each key takes, room is how many lines there are,
// and page returns how many keys are visible from a key on.
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

// lastWindow returns the first key from which all the others fit.
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

package output

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"slices"
	"strings"

	"trace/lang/format"
	"trace/lang/result"
	"trace/probes/event"
)

// This file lays out the flame graphs of a page.

// flameScript zooms and searches in flame graphs. They are drawn without it too.
//
//go:embed flame.js
var flameScript string

// flameTools returns the script for the page, and its hash: the policy of the page allows only this script.
func flameTools() (script template.JS, hash string) {
	sum := sha256.Sum256([]byte(flameScript))
	return template.JS(flameScript), base64.StdEncoding.EncodeToString(sum[:])
}

// flame is a flame graph, the root at the bottom.
type flame struct {
	Height int
	Boxes  []box
	Total  string
	// Without is the sum of samples without a stack, which have no place in the graph. Part is their part of all in percent.
	Without, Part string
	Thin          int // frames that are visible only when the graph is zoomed
	Narrow        int // frames that are too narrow even then
	Missing       int // elements with a negative value
}

// box is a call. X and Width are in percent of the whole.
type box struct {
	X, Width string
	Y        int
	Class    string
	Name     string // if there is room
	Title    string
}

// Measures of a flame graph: the height of a row and, in percent of the graph's width, the least width of a frame to have a name,
// to be visible, and to be in the page at all.
const (
	flameRow    = 19
	namedWidth  = 1.6
	seenWidth   = 0.08
	leastWidth  = 0.02
	wholeFrames = 100.0
)

// call is a node of the tree that a flame graph shows.
type call struct {
	name  string
	key   bool // an element of the key, not a frame
	value uint64
	calls []*call
	index map[string]*call
}

func (c *call) child(name string, key bool) *call {
	if c.index == nil {
		c.index = map[string]*call{}
	}
	next := c.index[name]
	if next == nil {
		next = &call{name: name, key: key}
		c.index[name] = next
		c.calls = append(c.calls, next)
	}
	return next
}

func (c *call) depth() int {
	deepest := 0
	for _, next := range c.calls {
		deepest = max(deepest, next.depth())
	}
	return deepest + 1
}

// newFlame returns the graph of a profile, or nil if the profile is empty.
func newFlame(p result.Profile) *flame {
	root := &call{name: p.Map, key: true}
	var without uint64
	for _, s := range p.Samples {
		if len(s.Frames) == 0 { // a frame for it would be the widest and mean nothing
			without += s.Value
			continue
		}
		at := root
		at.value += s.Value
		for i, name := range flames(s) {
			at = at.child(name, i < len(s.Key))
			at.value += s.Value
		}
	}
	if root.value+without == 0 {
		return nil
	}
	f := &flame{Total: profileText(p, root.value), Missing: p.Negative}
	if without > 0 {
		f.Without, f.Part = profileText(p, without), fmt.Sprintf("%.1f", 100*float64(without)/float64(root.value+without))
	}
	if root.value > 0 {
		depth := root.depth()
		f.Height = depth * flameRow
		f.draw(p, root, root.value, 0, depth-1)
	}
	return f
}

// draw draws a call at x, in the given row from the top, and the calls that it made above it.
func (f *flame) draw(p result.Profile, c *call, all uint64, x float64, row int) {
	width := wholeFrames * float64(c.value) / float64(all)
	if width < leastWidth {
		f.Narrow++
		return
	}
	b := box{
		X: fmt.Sprintf("%.3f", x), Width: fmt.Sprintf("%.3f", width), Y: row * flameRow, Class: flameClass(c),
		Title: fmt.Sprintf("%s — %s, %.2f%%", c.name, profileText(p, c.value), width),
	}
	switch {
	case width >= namedWidth:
		b.Name = c.name
	case width < seenWidth:
		f.Thin++
		b.Class += " thin"
	}
	f.Boxes = append(f.Boxes, b)
	slices.SortFunc(c.calls, func(a, b *call) int { return strings.Compare(a.name, b.name) })
	for _, next := range c.calls {
		f.draw(p, next, all, x, row-1)
		x += wholeFrames * float64(next.value) / float64(all)
	}
}

// flameClass returns the colour of a call, which is always the same for a name.
func flameClass(c *call) string {
	if c.key {
		return "key"
	}
	h := fnv.New32a()
	io.WriteString(h, c.name)
	return fmt.Sprintf("c%d", h.Sum32()%8)
}

// profileText returns a sum of values of a profile as it is printed.
func profileText(p result.Profile, n uint64) string {
	return string(format.AppendValue(nil, event.Type{Kind: event.Uint, Size: 8, Unit: p.Unit}, n))
}

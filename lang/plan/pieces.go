package plan

import "trace/lang/codegen"

// Piece is the place of a record in the output of one event, which takes several records if the kernel decides in between. Records of
// other CPUs come between them, so user space holds a piece until it has the last one.
type Piece struct {
	// First is a piece before which there is none, and Last one after which there is none.
	First, Last bool
	// Run is the value of the record that the pieces of one event have in common, and no others at the time.
	Run int
}

// most returns how many records statements send at most.
func most(body ...codegen.Stmt) (n int) {
	for _, s := range body {
		switch s := s.(type) {
		case *codegen.Emit:
			n++
		case *codegen.If:
			n += max(most(s.Then...), most(s.Else...))
		case *codegen.Repeat:
			n += s.Times * most(s.Body...)
		}
	}
	return n
}

// sent is what may have been sent of an event's output before a statement: a set of its states.
type sent uint8

const (
	nothing sent = 1 << iota
	some
	everything
)

// marker marks the records of a body as pieces.
type marker struct {
	pieceOf func(*codegen.Emit) *Piece
	// last returns a last piece without output.
	last func() *codegen.Emit
}

// mark adds an empty last piece where a path through a body would end without one. before is what may have been sent, and more reports that
// other pieces may follow the body. It returns what may have been sent in the end.
func (m *marker) mark(body []codegen.Stmt, before sent, more bool) (out []codegen.Stmt, after sent) {
	now := before
	end := func() {
		if now&some != 0 {
			out, now = append(out, m.last()), everything
		}
	}
	for i, s := range body {
		follows := more || most(body[i+1:]...) > 0
		switch s := s.(type) {
		case *codegen.Emit:
			now = m.emit(s, now, follows && !stopsAt(body[i+1:]))
		case *codegen.If:
			follows = follows || most(s) == 0
			var then, otherwise sent
			s.Then, then = m.mark(s.Then, now, follows)
			s.Else, otherwise = m.mark(s.Else, now, follows)
			now = then | otherwise
		case *codegen.Repeat:
			if most(s) > 0 {
				now |= some
			}
			s.Body, _ = m.mark(s.Body, now, true)
		case *codegen.Return:
			end()
			now = 0
		case *codegen.Jump, *codegen.Stop:
			now = 0
		}
		out = append(out, s)
	}
	if !more {
		end()
	}
	return out, now
}

func (m *marker) emit(s *codegen.Emit, before sent, follows bool) (after sent) {
	piece := m.pieceOf(s)
	piece.First, piece.Last = before == nothing, !follows
	if piece.Last {
		return everything
	}
	return some
}

// stopsAt reports whether statements begin with an exit().
func stopsAt(body []codegen.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	_, is := body[0].(*codegen.Stop)
	return is
}

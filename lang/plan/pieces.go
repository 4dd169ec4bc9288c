package plan

import "trace/lang/codegen"

// Piece is a record with a part of the output of one event, which takes several records if the kernel decides in between. Records of other
// CPUs come between them, so user space holds a piece until it has the last one. If one finds no room, those after it are not sent.
type Piece struct {
	// Last is a piece after which there is none.
	Last bool
	// Run is the value of the record that the pieces of one event have in common, and no others at the time. Number is the value that counts
	// the pieces before.
	Run, Number int
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

// marker marks the last pieces of a body.
type marker struct {
	pieceOf func(*codegen.Emit) *Piece
	// end returns a last piece without output, which is sent if there are others.
	end func() *codegen.Emit
}

// mark adds an end where a path through a body may lack a last piece. open reports that pieces may have been sent, and more that others may
// follow the body. It returns whether a last piece may be lacking in the end.
func (m *marker) mark(body []codegen.Stmt, open, more bool) (out []codegen.Stmt, lacking bool) {
	for i, s := range body {
		follows := more || most(body[i+1:]...) > 0
		switch s := s.(type) {
		case *codegen.Emit:
			open = follows && !stopsAt(body[i+1:])
			m.pieceOf(s).Last = !open
		case *codegen.If:
			follows = follows || most(s) == 0
			var then, otherwise bool
			s.Then, then = m.mark(s.Then, open, follows)
			s.Else, otherwise = m.mark(s.Else, open, follows)
			open = then || otherwise
		case *codegen.Repeat:
			open = open || most(s) > 0
			s.Body, _ = m.mark(s.Body, open, true)
		case *codegen.Return:
			if open {
				out = append(out, m.end())
			}
			open = false
		case *codegen.Jump, *codegen.Stop:
			open = false
		}
		out = append(out, s)
	}
	if open && !more {
		return append(out, m.end()), false
	}
	return out, open
}

// stopsAt reports whether statements begin with an exit().
func stopsAt(body []codegen.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	_, is := body[0].(*codegen.Stop)
	return is
}

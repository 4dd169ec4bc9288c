package plan

import (
	"slices"

	"trace/lang/ir"
)

// uses are what a site does with a map.
type uses struct {
	// reads reports that the site uses values or keys: it looks up a value or a key, counts the keys, prints the map, or loops over
	// it.
	reads                 bool
	looksUp, asks, counts bool
	// of a scalar: +=, =, and either of them in a way that depends on the old value
	adds, sets, modifies bool
	aggregates           bool
	removes              bool // delete
	clears, zeros        bool
	// keyed reports that it names a key whose value, or existence, matters.
	keyed bool
	// readsOthers and setsOthers are for scalars with a key that is not the thread's own: another CPU may use it at the same time.
	readsOthers, setsOthers bool
	// whole is the last statement that needs the map as it is at that moment: print, clear, zero, delete of all keys, or a loop.
	whole string
}

// empties reports whether the site removes some of what was counted.
func (u *uses) empties() bool { return u.removes || u.clears || u.zeros }

// siteUses are what a site does with maps, and whether it may end the program.
type siteUses struct {
	maps  map[*ir.Map]*uses
	exits bool
}

// usesOf finds the uses in one walk.
func usesOf(b *ir.Site) *siteUses {
	all := &siteUses{maps: map[*ir.Map]*uses{}}
	b.WalkExprs(func(e *ir.Expr) {
		if e.Map != nil {
			all.of(e.Map).expr(e)
		}
	})
	ir.WalkStmts(b.Stmts, func(s ir.Stmt) {
		switch s := s.(type) {
		case *ir.SetStmt:
			all.of(s.Map).set(s)
		case *ir.UpdateStmt:
			all.of(s.Map).aggregates = true
		case *ir.ForStmt:
			if s.Map != nil {
				all.of(s.Map).reads, all.of(s.Map).whole = true, "for"
			}
		case *ir.CallStmt:
			all.exits = all.exits || s.Fn == "exit"
			if s.Map != nil {
				all.of(s.Map).call(s)
			}
		}
	})
	return all
}

// of returns the uses of a map, for the caller to extend.
func (b *siteUses) of(m *ir.Map) *uses {
	if b.maps[m] == nil {
		b.maps[m] = &uses{}
	}
	return b.maps[m]
}

func (u *uses) expr(e *ir.Expr) {
	u.reads = true
	switch e.Op {
	case ir.OpLookup:
		u.looksUp = true
	case ir.OpHasKey:
		u.asks = true
	case ir.OpLen:
		u.counts = true
		return
	}
	u.readsOthers = u.readsOthers || !ownKey(e.Args)
	u.keyed = true
}

func (u *uses) set(s *ir.SetStmt) {
	u.adds = u.adds || s.Adds
	u.modifies = u.modifies || s.Adds
	if s.Adds {
		return
	}
	u.sets = true
	u.setsOthers = u.setsOthers || !ownKey(s.Key)
	for _, v := range s.Value {
		ir.WalkExpr(v, func(e *ir.Expr) { u.modifies = u.modifies || e.Map == s.Map })
	}
}

func (u *uses) call(s *ir.CallStmt) {
	u.keyed = u.keyed || s.Key != nil
	if s.Fn != "delete" || s.Key == nil {
		u.whole = s.Fn
	}
	switch s.Fn {
	case "print":
		u.reads = true
		u.zeros = u.zeros || s.Map.Agg != nil && s.Map.Agg.Traits().Restarts // printing restarts it
	case "delete":
		u.removes = true
	case "clear":
		u.clears = true
	case "zero":
		u.zeros = true
	}
}

// join adds the uses of another site.
func (u *uses) join(o *uses) {
	if o == nil {
		return
	}
	u.reads, u.looksUp, u.asks, u.counts = u.reads || o.reads, u.looksUp || o.looksUp, u.asks || o.asks, u.counts || o.counts
	u.adds, u.sets, u.modifies, u.aggregates = u.adds || o.adds, u.sets || o.sets, u.modifies || o.modifies, u.aggregates || o.aggregates
	u.removes, u.clears, u.zeros = u.removes || o.removes, u.clears || o.clears, u.zeros || o.zeros
}

// ownKey reports whether a key contains the thread id: then no other CPU uses it at the same time.
func ownKey(key []*ir.Expr) bool {
	return slices.ContainsFunc(key, func(e *ir.Expr) bool {
		if e.Op == ir.OpSigned {
			e = e.Args[0]
		}
		return e.Op == ir.OpField && e.Field.Common && e.Field.Name == "tid"
	})
}

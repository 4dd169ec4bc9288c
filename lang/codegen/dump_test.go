package codegen_test
import (os_ "os";"testing";"fmt";"trace/lang/codegen")
func TestDump(t *testing.T) {
	type o struct { n int; f codegen.Func; key, opt int; optpred bool; bits int }
	for _, o := range []o{
{6, codegen.Hist, 0,0,true,0},
	} {
	var clauses []codegen.Clause
	var maps []*codegen.Map
	for i := range o.n {
		m := &codegen.Map{Name: fmt.Sprint("m", i), Index: i, 
			Agg: &codegen.Agg{Func: o.f, Bits: o.bits}, Entries: 10}
		c := codegen.Clause{}
		var k []*expr
		if o.key>0 { 
			k = []*expr{b, s}
			if o.opt >0{ k[0]= ob }
			if o.opt >1{ k[1]= os }
			k = k[:o.key]
			var cols []codegen.Column
			for _, e := range k { cols = append(cols, codegen.Column{Type: e.Type, Optional: e.Field.Optional}) }
			m.Key= codegen.NewRow(cols...)
		}
		pa := a
		if o.optpred { pa = oa}
		c.Pred = is(codegen.OpGt, pa, lit(uint64(i)))
		c.Body = []codegen.Stmt{&codegen.Update{Map: m, Key: k, Arg: a}}
		maps = append(maps, m)
		clauses = append(clauses, c)
	}
	p := codegen.Program{Clauses: clauses, CmpXchg: true}
	r := start(t, p, maps...)
	t.Logf("%+v %d", o, r.Verified()); os_.WriteFile("/tmp/log.txt", []byte(r.Log()), 0o644)
	}
}

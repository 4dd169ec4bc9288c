package check

import (
	"testing"

	"trace/lang/langtest"
)

// The calls of trace itself are left out of the probes that echo, and with a command those before its execve, whatever the clause is.
func TestWithoutSelf(t *testing.T) {
	const (
		notSelf   = "!=(pid:u4, own:u8):bool"
		notBefore = `||(||(!=(pid:u4, cpid:u8):bool, !=(comm:str16, "waits"):bool):bool, ==(nr:u4 syscall_nr, 0):bool):bool`
	)
	for _, test := range []struct {
		src  string
		o    Options
		want string
	}{
		{"syscall:enter", Options{}, "syscall:enter prints"},
		{"syscall:enter", Options{WithoutSelf: true}, "syscall:enter / " + notSelf + " / prints"},
		{"syscall:enter / pid > 1 /", Options{WithoutSelf: true}, "syscall:enter / &&(" + notSelf + ", >(pid:u4, 1):bool):bool / prints"},
		{"syscall:enter", Options{WithoutSelf: true, Command: true, Waiting: "waits"}, "syscall:enter / &&(" + notSelf + ", " + notBefore + "):bool / prints"},
		{"nvme:complete_rq", Options{WithoutSelf: true, Command: true, Waiting: "waits"}, "nvme:complete_rq prints"},
		{"begin { exit() }", Options{WithoutSelf: true}, "begin\n\texit()"},
	} {
		p, err := compile("program", test.src, langtest.Catalog, test.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Dump(); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.src, got, test.want)
		}
	}
}

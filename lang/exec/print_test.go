package exec

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"trace/lang/format"
	"trace/lang/langtest"
	"trace/lang/output"
	"trace/lang/result"
	"trace/lang/syntax"
	"trace/probes/event"
)

func TestValues(t *testing.T) {
	sns, ssize := event.Type{Kind: event.Int, Size: 8, Unit: event.Nanoseconds}, event.Type{Kind: event.Int, Size: 8, Unit: event.Bytes}
	for _, test := range []struct {
		typ        event.Type
		v          any
		text, json string
	}{
		{langtest.U64, uint64(math.MaxUint64), "18446744073709551615", "18446744073709551615"},
		{langtest.S64, int64(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
		{langtest.Flag, true, "true", "true"},
		{langtest.Opcode, uint64(2), "read", `"read"`},
		{langtest.Opcode, uint64(99), "unknown(0x63)", "99"},
		{langtest.QpState, int64(-1), "unknown(0xffffffff)", "-1"},
		{langtest.Classed, uint64(0x1c1), "unknown(admin:0xc1)", "449"},
		{langtest.Classed, uint64(0x0c1), "unknown(io:0xc1)", "193"},
		{langtest.Classed, uint64(0x2c1), "unknown(0x2c1)", "705"},
		{langtest.Classed, uint64(0x3c1), "unknown(0x3c1)", "961"},
		{langtest.Access, uint64(4), "REMOTE_READ", `"REMOTE_READ"`},
		{langtest.Access, uint64(6), "REMOTE_WRITE|REMOTE_READ", `"REMOTE_WRITE|REMOTE_READ"`},
		{langtest.Access, uint64(13), "REMOTE_READ|0x9", `"REMOTE_READ|0x9"`},
		{langtest.Access, uint64(0), "0", "0"},
		{langtest.Hex, uint64(0xdeadbeef), "0xdeadbeef", "3735928559"},
		{event.Type{Kind: event.Int, Size: 2, Unit: event.Hex}, int64(-1), "0xffff", "-1"},
		{langtest.Errno, int64(-22), "-EINVAL", "-22"},
		{langtest.Errno, int64(0), "0", "0"},
		{langtest.Errno, int64(22), "22", "22"},
		{langtest.Errno, int64(-11), "-EAGAIN", "-11"},
		{langtest.Errno, int64(-95), "-EOPNOTSUPP", "-95"},
		{langtest.Errno, int64(-524), "-ENOTSUPP", "-524"},
		{langtest.Errno, int64(-530), "-ERECALLCONFLICT", "-530"},
		{langtest.Errno, int64(-4000), "-4000", "-4000"},
		{langtest.Gid, langtest.Addresses["fe80::1"], "fe80::1", `"fe80::1"`},
		{langtest.Gid, langtest.Addresses["::ffff:10.9.0.1"], "::ffff:10.9.0.1", `"::ffff:10.9.0.1"`},

		{langtest.Ns, uint64(0), "0s", "0"},
		{langtest.Ns, uint64(850), "850ns", "850"},
		{langtest.Ns, uint64(999), "999ns", "999"},
		{langtest.Ns, uint64(1000), "1us", "1000"},
		{langtest.Ns, uint64(12_345), "12.3us", "12345"},
		{langtest.Ns, uint64(100_400), "100us", "100400"},
		{langtest.Ns, uint64(999_499), "999us", "999499"},
		{langtest.Ns, uint64(999_500), "1ms", "999500"},
		{langtest.Ns, uint64(1_200_000), "1.2ms", "1200000"},
		{langtest.Ns, uint64(9_996_000), "10ms", "9996000"},
		{langtest.Ns, uint64(99_960_000), "100ms", "99960000"},
		{langtest.Ns, uint64(3_050_000_000), "3.05s", "3050000000"},
		{langtest.Ns, uint64(59_940_000_000), "59.9s", "59940000000"},
		{langtest.Ns, uint64(59_950_000_000), "1m", "59950000000"},
		{langtest.Ns, uint64(90_499_999_999), "1m30s", "90499999999"},
		{langtest.Ns, uint64(3_600_000_000_000), "1h", "3600000000000"},
		{langtest.Ns, uint64(3_725_400_000_000), "1h2m5s", "3725400000000"},
		{langtest.Ns, uint64(86_405_000_000_000), "1d5s", "86405000000000"},
		{langtest.Ns, uint64(math.MaxUint64), "213503d23h34m34s", "18446744073709551615"},
		{sns, int64(-1500), "-1.5us", "-1500"},
		{sns, int64(math.MinInt64), "-106751d23h47m17s", "-9223372036854775808"},

		{langtest.Size, uint64(0), "0B", "0"},
		{langtest.Size, uint64(512), "512B", "512"},
		{langtest.Size, uint64(1500), "1500B", "1500"},
		{langtest.Size, uint64(4096), "4KiB", "4096"},
		{langtest.Size, uint64(9999), "9999B", "9999"},
		{langtest.Size, uint64(10_000), "9.77KiB", "10000"},
		{langtest.Size, uint64(10_240), "10KiB", "10240"},
		{langtest.Size, uint64(12_345), "12.1KiB", "12345"},
		{langtest.Size, uint64(1<<20 - 1), "1.0MiB", "1048575"},
		{langtest.Size, uint64(5<<30 + 4<<10 + 512), "5.0GiB", "5368713728"},
		{langtest.Size, uint64(4_823_449 << 10), "4.6GiB", "4939211776"},
		{langtest.Size, uint64(math.MaxUint64), "16.0EiB", "18446744073709551615"},
		{ssize, int64(-12_345), "-12.1KiB", "-12345"},
		{langtest.Size, uint64(1 << 20), "1MiB", "1048576"},
		{langtest.Size, uint64(3 << 29), "1536MiB", "1610612736"},
		{langtest.Size, uint64(1 << 63), "8EiB", "9223372036854775808"},
		{ssize, int64(-4096), "-4KiB", "-4096"},

		{langtest.Str16, "nvme0", "nvme0", `"nvme0"`},
		{langtest.Str16, "", `""`, `""`},
		{langtest.Str16, "-", `"-"`, `"-"`},
		{langtest.Str16, "a b", `"a b"`, `"a b"`},
		{langtest.Str16, `a"\`, `"a\"\\"`, `"a\"\\"`},
		{langtest.Str16, "kworker/0:1", "kworker/0:1", `"kworker/0:1"`},
		{langtest.Str16, "a\n\x1b\x7f", `"a\n\x1b\x7f"`, `"a\u000a\u001b\u007f"`},
		{langtest.Str16, "é\xff", `"é\xff"`, "\"é\ufffd\""},
	} {
		if got := string(format.AppendValue(nil, test.typ, test.v)); got != test.text {
			t.Errorf("%v as text: got %s, want %s", test.v, got, test.text)
		}
		got := string(format.AppendJSONValue(nil, test.typ, test.v))
		if got != test.json || !json.Valid([]byte(got)) {
			t.Errorf("%v as JSON: got %s, want %s", test.v, got, test.json)
		}
	}
}

func TestPrinter(t *testing.T) {
	boot := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.FixedZone("CEST", 2*3600))
	for _, test := range []struct {
		probe      string
		e          langtest.Table
		text, json string
	}{
		{
			"nvme:complete_rq",
			langtest.Table{"nsecs": uint64(1e9), "pid": uint64(1234), "tid": uint64(1235), "uid": uint64(0), "comm": "fio", "cpu": uint64(3), "cgroup": uint64(77),
				"ctrl": "nvme0", "opcode": uint64(2), "size": uint64(4096), "latency": uint64(1.2e6), "write": false},
			`07:08:10.123456 nvme:complete_rq fio/1234 ctrl=nvme0 opcode=read size=4KiB latency=1.2ms write=false`,
			`{"type":"event","probe":"nvme:complete_rq","time":"2024-05-06T07:08:10.123456789+02:00","data":{"nsecs":1000000000,"pid":1234,"tid":1235,"uid":0,"comm":"fio","cpu":3,"cgroup":{"id":77,"path":null},"ctrl":"nvme0","opcode":"read","size":4096,"latency":1200000,"write":false}}`,
		},
		{
			"ib:modify_qp",
			langtest.Table{"qp.num": uint64(17), "qp.state": int64(2), "comm": "a \xff", "ret": int64(-22)},
			`- ib:modify_qp "a \xff"/- qp.num=17 qp.state=RTR ret=-EINVAL`,
			`{"type":"event","probe":"ib:modify_qp","time":null,"data":{"nsecs":null,"pid":null,"tid":null,"uid":null,"comm":"a �","cpu":null,"cgroup":null,"qp":{"num":17,"state":"RTR","old_state":null},"dgid":null,"sgid":null,"access":null,"ret":-22}}`,
		},
	} {
		for format, want := range map[output.Format]string{output.Text: test.text, output.JSON: test.json} {
			var b bytes.Buffer
			p := output.NewPrinter(&b, format, event.NewWallClock(boot))
			for range 2 {
				if err := p.Event(result.At(0), langtest.Fixture(test.probe), test.e); err != nil {
					t.Fatal(err)
				}
			}
			if got := b.String(); got != want+"\n"+want+"\n" {
				t.Errorf("%s:\n got %swant %s", format, got, want)
			}
			if format == output.JSON {
				checkSchema(t, b.String())
			}
		}
	}
}

// TestMembers checks that the fields of an object stand together, even if others are between them.
func TestMembers(t *testing.T) {
	p := &event.Probe{Group: "a", Name: "b", Fields: []*event.Field{
		langtest.Field("x.a.i", langtest.U8), langtest.Field("y", langtest.U8), langtest.Field("x.b", langtest.U8), langtest.Field("x.a.j", langtest.U8), langtest.Field("x.nsecs", langtest.U8),
	}}
	var b bytes.Buffer
	e := langtest.Table{"x.a.i": uint64(1), "y": uint64(2), "x.b": uint64(3), "x.a.j": uint64(4), "x.nsecs": uint64(5)}
	if err := output.NewPrinter(&b, output.JSON, event.NewWallClock(time.Time{})).Event(result.At(0), p, e); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"event","probe":"a:b","time":null,"data":{"x":{"a":{"i":1,"j":4},"b":3,"nsecs":5},"y":2}}` + "\n"
	if b.String() != want {
		t.Errorf("got %s", b.String())
	}
}

// FuzzStrings checks that strings of any bytes leave the line whole and readable.
func FuzzStrings(f *testing.F) {
	for _, s := range []string{"fio", "\xff\x00\n", `"\`, "\u2028", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := string(format.AppendWord(nil, s))
		if text == "" || text == "-" || strings.ContainsAny(text, "\n\r\x1b\x00") {
			t.Errorf("%q is printed as %q", s, text)
		}
		if shown := string(syntax.AppendVisible(nil, s)); strings.ContainsAny(shown, "\n\r\x1b\x00") {
			t.Errorf("%q is shown as %q", s, shown)
		}
		var back string
		if err := json.Unmarshal(format.AppendJSONString(nil, s), &back); err != nil || back != string([]rune(s)) {
			t.Errorf("%q came back as %q: %v", s, back, err)
		}
	})
}

func BenchmarkPrinter(b *testing.B) {
	for _, format := range []output.Format{output.Text, output.JSON} {
		b.Run(string(format), func(b *testing.B) {
			var out bytes.Buffer
			p, probe := output.NewPrinter(&out, format, event.NewWallClock(time.Time{})), langtest.Fixture("ib:modify_qp")
			e := full(probe)
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				if err := p.Event(result.At(0), probe, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A line of text has no time: an event without its own must not cost a reading of the clock. A trace places the line in time.
func TestClockOfLines(t *testing.T) {
	for format, want := range map[output.Format]int{output.Text: 0, output.JSON: 0, output.Perfetto: 2} {
		r, reads := startRun(t, `nvme:complete_rq { printf("%d", size) }`), 0
		r.machine.sink = output.NewPrinter(io.Discard, format, event.NewWallClock(time.Time{}))
		r.machine.clock = func() uint64 { reads++; return 1 }
		for range 2 {
			r.event(t, "nvme:complete_rq", langtest.Table{"size": uint64(1)})
		}
		if reads != want {
			t.Errorf("%s reads the clock %d times for two lines, want %d", format, reads, want)
		}
	}
}

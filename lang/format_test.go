package lang

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"trace/lang/format"
	"trace/probes/event"
)

func arg(t event.Type) *expr { return &expr{op: opField, typ: t} }

// pair is a tuple of an enum and a string.
var pair = &expr{op: opTuple, typ: event.Type{Kind: format.Tuple}, elems: []event.Type{opcode, str16}}

func TestFormat(t *testing.T) {
	s16 := event.Type{Kind: event.Int, Size: 2}
	for _, test := range []struct {
		format string
		arg    *expr
		v      any
		want   string
	}{
		{"%d", arg(u64), uint64(math.MaxUint64), "18446744073709551615"},
		{"%d", arg(s64), int64(math.MinInt64), "-9223372036854775808"},
		{"<%5d>", arg(u8), uint64(42), "<   42>"},
		{"<%-5i>", arg(u8), uint64(42), "<42   >"},
		{"<%05d>", arg(s8), int64(-42), "<-0042>"},
		{"<%0-5d>", arg(s8), int64(-42), "<-42  >"},
		{"<%+d>", arg(u8), uint64(42), "<+42>"},
		{"<% d>", arg(u8), uint64(42), "< 42>"},
		{"<%+ 5d>", arg(u8), uint64(42), "<  +42>"},
		{"<%.4d>", arg(u8), uint64(42), "<0042>"},
		{"<%06.3d>", arg(u8), uint64(42), "<   042>"},
		{"<%.d>", arg(u8), uint64(0), "<>"},
		{"%d", arg(opcode), uint64(2), "2"},
		{"%d", arg(flag), true, "1"},
		{"%x", arg(flag), false, "0"},
		{"%d", arg(ns), uint64(1_200_000), "1200000"},
		{"%d", arg(errno), int64(-22), "-22"},
		{"%lld %%", arg(s64), int64(-1), "-1 %"},
		{"%ld", arg(s64), int64(-1), "-1"},
		{"%td", arg(s64), int64(-1), "-1"},
		{"%hhd", arg(s64), int64(0x1ff), "-1"},
		{"%hd", arg(u64), uint64(0x18000), "-32768"},
		{"%hhu", arg(s64), int64(-1), "255"},
		{"%hx", arg(s64), int64(-1), "ffff"},
		{"%u", arg(s8), int64(-1), "255"},
		{"%x", arg(s16), int64(-1), "ffff"},
		{"%x", arg(s64), int64(-1), "ffffffffffffffff"},
		{"%u", arg(errno), int64(-22), "4294967274"},
		{"%+u", arg(u8), uint64(1), "1"},
		{"%#x", arg(hex), uint64(0xbeef), "0xbeef"},
		{"%#X", arg(hex), uint64(0xbeef), "0XBEEF"},
		{"%08x", arg(hex), uint64(0xbeef), "0000beef"},
		{"%o", arg(u32), uint64(8), "10"},
		{"%#o", arg(u32), uint64(8), "010"},
		{"%p", arg(u64), uint64(0xffff888000000000), "0xffff888000000000"},
		{"<%8p>", arg(u32), uint64(16), "<    0x10>"},
		{"%c", arg(u8), uint64('A'), "A"},
		{"%c", arg(u64), uint64(0x1e9), `\xe9`},
		{"<%3c>", arg(u8), uint64('A'), "<  A>"},

		{"%s", arg(str16), "a \"b\"\n", `a "b"\n`},
		{"<%8s>", arg(str16), "fio", "<     fio>"},
		{"<%-8s>", arg(str16), "fio", "<fio     >"},
		{"<%08s>", arg(str16), "fio", "<     fio>"},
		{"<%.2s>", arg(str16), "fio", "<fi>"},
		{"<%6s>", arg(str16), "é\xff", `< é\xff>`},
		{"<%.2s>", arg(str16), "hé\xff", `<h\xc3>`},
		{"<%8.3s>", arg(str16), "\xffabc", `<  \xffab>`},
		{"%s", arg(opcode), uint64(2), "read"},
		{"%s", arg(opcode), uint64(77), "unknown(0x4d)"},
		{"%t", arg(ns), uint64(0), "0s"},
		{"%t", arg(ns), uint64(5_400_000_000_000), "1h30m"},
		{"%t", arg(size), uint64(5<<30 + 512), "5.0GiB"},
		{"%s", arg(errno), int64(-22), "-EINVAL"},
		{"%s", arg(gid), addresses["fe80::1"], "fe80::1"},
		{"%s", arg(flag), true, "true"},
		{"%s", pair, []any{uint64(2), "fio"}, "(read, fio)"},
		{"<%14s>", pair, []any{nil, "a\x1b"}, `<    (-, a\x1b)>`},

		{"%t", arg(u64), uint64(7), "7"},
		{"%tus", arg(u64), uint64(7), "7s"}, // as in C, where t is a length modifier
		{"%ts", arg(ns), uint64(1_200_000), "1.2mss"},
		{"<%8t>", arg(ns), uint64(1_200_000), "<   1.2ms>"},
		{"%t", arg(size), uint64(4096), "4KiB"},
		{"%t", arg(hex), uint64(255), "0xff"},
		{"%t", arg(str16), "a b", "a b"},
		{"%t", arg(str16), "a\n\xff", `a\n\xff`},
		{"%t\n", pair, []any{uint64(2), "fio"}, "(read, fio)\n"},

		{"%r", arg(str16), "a b\n\xff", `a b\x0a\xff`},
		{"%rx", arg(str16), "a\n", `\x61\x0a`},
		{"%rh", arg(str16), "a\n", "61 0a"},
		{"%rh", arg(gid), addresses["fe80::1"], "fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01"},

		{"<%5d>", arg(u8), nil, "<    ->"},
		{"<%-5d>", arg(u8), nil, "<-    >"},
		{"<%05x>", arg(u8), nil, "<    ->"},
		{"%s", arg(str16), nil, "-"},
		{"%rh", arg(gid), nil, "-"},
	} {
		f, err := newFormat(test.format, []*expr{test.arg}, false)
		if err != nil {
			t.Errorf("%s: %v", test.format, err)
			continue
		}
		if got := string(f.append(nil, []any{test.v})); got != test.want {
			t.Errorf("%s of %v: got %q, want %q", test.format, test.v, got, test.want)
		}
	}
}

func TestFormatOfMany(t *testing.T) {
	f, err := newFormat("100%% %s: %d%%, %t.\n", []*expr{arg(str16), arg(u8), arg(ns)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.append([]byte("> "), []any{"fio", uint64(7), nil})); got != "> 100% fio: 7%, -.\n" {
		t.Errorf("got %q", got)
	}
}

func TestFormatErrors(t *testing.T) {
	for _, test := range []struct {
		format    string
		args      []*expr
		arg       int
		msg, help string
	}{
		{"%d %d", []*expr{arg(u8)}, -1, "no argument for %d", "add one; a percent sign is %%"},
		{"%d", []*expr{arg(u8), arg(u8)}, 1, "the format has no conversion for this argument", "add one, such as %t"},
		{"", []*expr{arg(u8)}, 0, "the format has no conversion for this argument", "add one, such as %t"},
		{"100%", nil, -1, "the format ends within a conversion", "a percent sign is %%"},
		{"%5", nil, -1, `there is no conversion "%5"`, "there are %d %i %u %x %X %o %c %p %s %t %r %rx %rh; a percent sign is %%"},
		{"%.3f", []*expr{arg(u8)}, -1, `there is no conversion "%.3f"`, "there are %d %i %u %x %X %o %c %p %s %t %r %rx %rh; a percent sign is %%"},
		{"50% off", nil, -1, "no argument for % o", "add one; a percent sign is %%"},
		{"%n", nil, -1, `there is no conversion "%n"`, "there are %d %i %u %x %X %o %c %p %s %t %r %rx %rh; a percent sign is %%"},
		{"%*d", []*expr{arg(u8), arg(u8)}, -1, "%*d takes a width from an argument", "write it as a number, like %8d"},
		{"%.*s", []*expr{arg(u8), arg(str16)}, -1, "%.*s takes a width from an argument", "write it as a number, like %8d"},
		{"%1001d", []*expr{arg(u8)}, -1, "%1001d is too wide", "at most 1000"},
		{"%.99999999999999999999d", []*expr{arg(u8)}, -1, "%.99999999999999999999d is too wide", "at most 1000"},
		{"%d %s", []*expr{arg(u8), arg(u8)}, 1, "%s prints text and names, and this is a number", "write %d"},
		{"%s", []*expr{arg(ns)}, 0, "%s prints text and names, and this is a number", "write %d for nanoseconds, or %t for one like 1.2ms"},
		{"%s", []*expr{arg(size)}, 0, "%s prints text and names, and this is a number", "write %d for bytes, or %t for one like 4KiB"},
		{"%s", []*expr{arg(hex)}, 0, "%s prints text and names, and this is a number", "write %x, or %d"},
		{"%d", []*expr{arg(str16)}, 0, "%d prints a number, and this is a string", "write %s"},
		{"%08lx", []*expr{arg(gid)}, 0, "%08lx prints a number, and this is an address", "write %s for the address, or %rh for its bytes"},
		{"%rh", []*expr{arg(opcode)}, 0, "%rh prints the bytes of a string or address, and this is a number", "write %s for the name, or %d for the number"},
		{"%c", []*expr{arg(str16)}, 0, "%c prints the character of a number, and this is a string", "write %s"},
	} {
		_, err := newFormat(test.format, test.args, false)
		var e *formatError
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v", test.format, err)
			continue
		}
		if e.Arg != test.arg || e.Msg != test.msg || e.Help != test.help || e.Error() != e.Msg {
			t.Errorf("%q: got %d, %q, %q", test.format, e.Arg, e.Msg, e.Help)
		}
	}
}

func TestTimeFormat(t *testing.T) {
	at := time.Date(2024, 5, 6, 17, 8, 9, 123456789, time.FixedZone("CEST", 2*3600))
	for format, want := range map[string]string{
		defaultTimeFormat:        "17:08:09\n",
		"%Y-%m-%dT%T.%f%z":       "2024-05-06T17:08:09.123456+0200",
		"%a %A %b %B %e %j":      "Mon Monday May May  6 127",
		"%I %p %y %C %u %w %V":   "05 PM 24 20 1 1 19",
		"%c|%x|%X|%D|%F|%R|%r":   "Mon May  6 17:08:09 2024|05/06/24|17:08:09|05/06/24|2024-05-06|17:08|05:08:09 PM",
		"%Z %s %G %g %U %W %h":   "CEST 1715008089 2024 24 18 19 May",
		"%Ey %Od %L %N%n%t100%%": "24 06 123 123456789\n\t100%",
		"":                       "",
	} {
		f, err := newTimeFormat(format)
		if err != nil {
			t.Errorf("%q: %v", format, err)
			continue
		}
		if got := string(appendTime(nil, f, at)); got != want {
			t.Errorf("%q: got %q, want %q", format, got, want)
		}
		if got := strftime(format, at); got != want {
			t.Errorf("%q: got %q, want %q", format, got, want)
		}
	}
	for _, format := range []string{"%", "%q", "%H:%", "%E", "%EH", "%é", "%5Y", "%_d"} {
		_, err := newTimeFormat(format)
		var e *formatError
		if !errors.As(err, &e) || e.Arg != -1 || e.Help == "" {
			t.Errorf("%q: got %v", format, err)
		}
	}
}

// FuzzFormat checks that no format panics, whatever it is, and that what it prints is what was asked for.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{"%d", "%-08.3llx%%", "%s%t", "%rh%r%rx", "%", "%*d", "%hhd%c%p", "%é", "%\xff"} {
		f.Add(s)
	}
	values := map[*expr][]any{
		arg(u64):    {uint64(0), uint64(math.MaxUint64), nil},
		arg(s8):     {int64(-128), int64(127)},
		arg(flag):   {true, false, nil},
		arg(str16):  {"", "a\x00\xff", nil},
		arg(gid):    {addresses["fe80::1"], nil},
		arg(opcode): {uint64(2), uint64(1 << 40)},
		arg(errno):  {int64(-22), int64(math.MinInt64)},
		arg(ns):     {uint64(math.MaxUint64)},
		pair:        {[]any{uint64(2), "x"}, []any{nil, nil}, nil},
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := newTimeFormat(text); err == nil {
			strftime(text, time.Unix(0, 0))
		}
		for e, list := range values {
			for n := range 4 {
				args, one := make([]*expr, n), make([]any, n)
				for i := range args {
					args[i] = e
				}
				format, err := newFormat(text, args, false)
				if err != nil {
					var fe *formatError
					if !errors.As(err, &fe) || fe.Arg >= n || fe.Msg == "" {
						t.Errorf("%q: %v", text, err)
					}
					continue
				}
				for _, v := range list {
					for i := range one {
						one[i] = v
					}
					if got := string(format.append(nil, one)); strings.Contains(got, "%!") && !strings.Contains(text, "!") {
						t.Errorf("%q of %v: package fmt complains: %q", text, v, got)
					}
				}
			}
		}
	})
}

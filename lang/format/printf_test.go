package format

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"trace/lang/langtest"
	"trace/probes/event"
)

func arg(t event.Type) Operand { return Operand{Type: t} }

// pair is a tuple of an enum and a string.
var pair = Operand{Type: event.Type{Kind: Tuple}, Elems: []event.Type{langtest.Opcode, langtest.Str16}}

func TestFormat(t *testing.T) {
	s16 := event.Type{Kind: event.Int, Size: 2}
	for _, test := range []struct {
		format string
		arg    Operand
		v      any
		want   string
	}{
		{"%d", arg(langtest.U64), uint64(math.MaxUint64), "18446744073709551615"},
		{"%d", arg(langtest.S64), int64(math.MinInt64), "-9223372036854775808"},
		{"<%5d>", arg(langtest.U8), uint64(42), "<   42>"},
		{"<%-5i>", arg(langtest.U8), uint64(42), "<42   >"},
		{"<%05d>", arg(langtest.S8), int64(-42), "<-0042>"},
		{"<%0-5d>", arg(langtest.S8), int64(-42), "<-42  >"},
		{"<%+d>", arg(langtest.U8), uint64(42), "<+42>"},
		{"<% d>", arg(langtest.U8), uint64(42), "< 42>"},
		{"<%+ 5d>", arg(langtest.U8), uint64(42), "<  +42>"},
		{"<%.4d>", arg(langtest.U8), uint64(42), "<0042>"},
		{"<%06.3d>", arg(langtest.U8), uint64(42), "<   042>"},
		{"<%.d>", arg(langtest.U8), uint64(0), "<>"},
		{"%d", arg(langtest.Opcode), uint64(2), "2"},
		{"%d", arg(langtest.Flag), true, "1"},
		{"%x", arg(langtest.Flag), false, "0"},
		{"%d", arg(langtest.Ns), uint64(1_200_000), "1200000"},
		{"%d", arg(langtest.Errno), int64(-22), "-22"},
		{"%lld %%", arg(langtest.S64), int64(-1), "-1 %"},
		{"%ld", arg(langtest.S64), int64(-1), "-1"},
		{"%td", arg(langtest.S64), int64(-1), "-1"},
		{"%hhd", arg(langtest.S64), int64(0x1ff), "-1"},
		{"%hd", arg(langtest.U64), uint64(0x18000), "-32768"},
		{"%hhu", arg(langtest.S64), int64(-1), "255"},
		{"%hx", arg(langtest.S64), int64(-1), "ffff"},
		{"%u", arg(langtest.S8), int64(-1), "4294967295"},
		{"%x", arg(s16), int64(-1), "ffffffff"},
		{"%x", arg(event.Type{Kind: event.Int, Size: 2, Unit: event.Hex}), int64(-1), "ffff"},
		{"%x", arg(langtest.S64), int64(-1), "ffffffff"},
		{"%lx", arg(langtest.S64), int64(-1), "ffffffffffffffff"},
		{"%zx", arg(s16), int64(-1), "ffffffffffffffff"},
		{"%x", arg(langtest.S64), int64(-5_000_000_000), "fffffffed5fa0e00"},
		{"%o", arg(langtest.S64), int64(-1), "37777777777"},
		{"%gr", arg(langtest.U64), uint64(0xcc0), "GFP_KERNEL"},
		{"%gr %%", arg(langtest.U64), uint64(0xd82), "GFP_NOIO|__GFP_HIGHMEM|__GFP_FS|__GFP_ZERO %"},
		{"%gr", arg(langtest.U64), uint64(0x100000001), "GFP_DMA|0x100000000"},
		{"<%12gr>", arg(langtest.U64), uint64(0), "<           0>"},
		{"%5%%llu", arg(langtest.U64), uint64(7), "%7"},
		{"<%lc>", arg(langtest.U64), uint64(65), "<A>"},
		{"<%ls>", arg(langtest.U64), uint64(65), "<65>"},
		{"%u", arg(langtest.Errno), int64(-22), "4294967274"},
		{"%+u", arg(langtest.U8), uint64(1), "1"},
		{"%#x", arg(langtest.Hex), uint64(0xbeef), "0xbeef"},
		{"%#X", arg(langtest.Hex), uint64(0xbeef), "0XBEEF"},
		{"%08x", arg(langtest.Hex), uint64(0xbeef), "0000beef"},
		{"%o", arg(langtest.U32), uint64(8), "10"},
		{"%#o", arg(langtest.U32), uint64(8), "010"},
		{"%p", arg(langtest.U64), uint64(0xffff888000000000), "0xffff888000000000"},
		{"<%8p>", arg(langtest.U32), uint64(16), "<    0x10>"},
		{"%c", arg(langtest.U8), uint64('A'), "A"},
		{"%c", arg(langtest.U64), uint64(0x1e9), `\xe9`},
		{"<%3c>", arg(langtest.U8), uint64('A'), "<  A>"},

		{"%s", arg(langtest.Str16), "a \"b\"\n", `a "b"\n`},
		{"<%8s>", arg(langtest.Str16), "fio", "<     fio>"},
		{"<%-8s>", arg(langtest.Str16), "fio", "<fio     >"},
		{"<%08s>", arg(langtest.Str16), "fio", "<     fio>"},
		{"<%.2s>", arg(langtest.Str16), "fio", "<fi>"},
		{"<%6s>", arg(langtest.Str16), "é\xff", `< é\xff>`},
		{"<%.2s>", arg(langtest.Str16), "hé\xff", `<h\xc3>`},
		{"<%8.3s>", arg(langtest.Str16), "\xffabc", `<  \xffab>`},
		{"%s", arg(langtest.Opcode), uint64(2), "read"},
		{"%s", arg(langtest.Opcode), uint64(77), "unknown(0x4d)"},
		{"%t", arg(langtest.Ns), uint64(0), "0s"},
		{"%t", arg(langtest.Ns), uint64(5_400_000_000_000), "1h30m"},
		{"%t", arg(langtest.Size), uint64(5<<30 + 512), "5.0GiB"},
		{"%s", arg(langtest.Errno), int64(-22), "-EINVAL"},
		{"%4s", arg(langtest.S8), int64(-7), "  -7"},
		{"%s", arg(langtest.Ns), uint64(1_200_000), "1.2ms"},
		{"%s", arg(langtest.Gid), langtest.Addresses["fe80::1"], "fe80::1"},
		{"%s", arg(langtest.Flag), true, "true"},
		{"%s", pair, []any{uint64(2), "fio"}, "(read, fio)"},
		{"<%14s>", pair, []any{nil, "a\x1b"}, `<    (-, a\x1b)>`},

		{"%t", arg(langtest.U64), uint64(7), "7"},
		{"%tus", arg(langtest.U64), uint64(7), "7s"}, // as in C, where t is a length modifier
		{"%ts", arg(langtest.Ns), uint64(1_200_000), "1.2mss"},
		{"<%8t>", arg(langtest.Ns), uint64(1_200_000), "<   1.2ms>"},
		{"%t", arg(langtest.Size), uint64(4096), "4KiB"},
		{"%t", arg(langtest.Hex), uint64(255), "0xff"},
		{"%t", arg(langtest.Str16), "a b", "a b"},
		{"%t", arg(langtest.Str16), "a\n\xff", `a\n\xff`},
		{"%t\n", pair, []any{uint64(2), "fio"}, "(read, fio)\n"},

		{"%r", arg(langtest.Str16), "a b\n\xff", `a b\x0a\xff`},
		{"%rx", arg(langtest.Str16), "a\n", `\x61\x0a`},
		{"%rh", arg(langtest.Str16), "a\n", "61 0a"},
		{"%rh", arg(langtest.Gid), langtest.Addresses["fe80::1"], "fe 80 00 00 00 00 00 00 00 00 00 00 00 00 00 01"},

		{"<%5d>", arg(langtest.U8), nil, "<    ->"},
		{"<%-5d>", arg(langtest.U8), nil, "<-    >"},
		{"<%05x>", arg(langtest.U8), nil, "<    ->"},
		{"%s", arg(langtest.Str16), nil, "-"},
		{"%rh", arg(langtest.Gid), nil, "-"},
	} {
		f, err := NewPattern(test.format, []Operand{test.arg}, false)
		if err != nil {
			t.Errorf("%s: %v", test.format, err)
			continue
		}
		if got := string(f.Append(nil, []any{test.v})); got != test.want {
			t.Errorf("%s of %v: got %q, want %q", test.format, test.v, got, test.want)
		}
	}
}

func TestFormatOfMany(t *testing.T) {
	f, err := NewPattern("100%% %s: %d%%, %t.\n", []Operand{arg(langtest.Str16), arg(langtest.U8), arg(langtest.Ns)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Append([]byte("> "), []any{"fio", uint64(7), nil})); got != "> 100% fio: 7%, -.\n" {
		t.Errorf("got %q", got)
	}
}

func TestFormatErrors(t *testing.T) {
	for _, test := range []struct {
		format    string
		args      []Operand
		arg       int
		msg, help string
	}{
		{"%d %d", []Operand{arg(langtest.U8)}, -1, "no argument for %d", "add one, or write %% for a percent sign"},
		{"%d", []Operand{arg(langtest.U8), arg(langtest.U8)}, 1, "the format has no conversion for this argument", "add one, such as %t"},
		{"", []Operand{arg(langtest.U8)}, 0, "the format has no conversion for this argument", "add one, such as %t"},
		{"100%", nil, -1, "the format ends within a conversion", "write %% for a percent sign"},
		{"%5", nil, -1, `there is no conversion "%5"`, "use one of %d %i %u %x %X %o %c %p %s %t %r %rx %rh %gr, or %% for a percent sign"},
		{"%.3f", []Operand{arg(langtest.U8)}, -1, `there is no conversion "%.3f"`, "use one of %d %i %u %x %X %o %c %p %s %t %r %rx %rh %gr, or %% for a percent sign"},
		{"50% off", nil, -1, "no argument for % o", "add one, or write %% for a percent sign"},
		{"%n", nil, -1, `there is no conversion "%n"`, "use one of %d %i %u %x %X %o %c %p %s %t %r %rx %rh %gr, or %% for a percent sign"},
		{"%*d", []Operand{arg(langtest.U8), arg(langtest.U8)}, -1, "%*d takes a width from an argument", "write it as a number, like %8d"},
		{"%.*s", []Operand{arg(langtest.U8), arg(langtest.Str16)}, -1, "%.*s takes a width from an argument", "write it as a number, like %8d"},
		{"%1001d", []Operand{arg(langtest.U8)}, -1, "%1001d is too wide", "use at most 1000"},
		{"%.99999999999999999999d", []Operand{arg(langtest.U8)}, -1, "%.99999999999999999999d is too wide", "use at most 1000"},
		{"%d %rh", []Operand{arg(langtest.U8), arg(langtest.U8)}, 1, "%rh prints the bytes of a string or address, not a number", "write %d"},
		{"%r", []Operand{arg(langtest.Ns)}, 0, "%r prints the bytes of a string or address, not a number", "write %d for nanoseconds, or %t for one like 1.2ms"},
		{"%r", []Operand{arg(langtest.Size)}, 0, "%r prints the bytes of a string or address, not a number", "write %d for bytes, or %t for one like 4KiB"},
		{"%r", []Operand{arg(langtest.Hex)}, 0, "%r prints the bytes of a string or address, not a number", "write %x, or %d"},
		{"%d", []Operand{arg(langtest.Str16)}, 0, "%d prints a number, not a string", "write %s"},
		{"%08lx", []Operand{arg(langtest.Gid)}, 0, "%08lx prints a number, not an address", "write %s for the address, or %rh for its bytes"},
		{"%rh", []Operand{arg(langtest.Opcode)}, 0, "%rh prints the bytes of a string or address, not a number", "write %s for the name, or %d for the number"},
		{"%c", []Operand{arg(langtest.Str16)}, 0, "%c prints the character of a number, not a string", "write %s"},
	} {
		_, err := NewPattern(test.format, test.args, false)
		var e *PatternError
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
	for text, want := range map[string]string{
		DefaultTimeFormat:        "17:08:09\n",
		"%Y-%m-%dT%T.%f%z":       "2024-05-06T17:08:09.123456+0200",
		"%a %A %b %B %e %j":      "Mon Monday May May  6 127",
		"%I %p %y %C %u %w %V":   "05 PM 24 20 1 1 19",
		"%c|%x|%X|%D|%F|%R|%r":   "Mon May  6 17:08:09 2024|05/06/24|17:08:09|05/06/24|2024-05-06|17:08|05:08:09 PM",
		"%Z %s %G %g %U %W %h":   "CEST 1715008089 2024 24 18 19 May",
		"%Ey %Od %L %N%n%t100%%": "24 06 123 123456789\n\t100%",
		"":                       "",
	} {
		f, err := NewTimePattern(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := string(AppendTime(nil, f, at)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := Strftime(text, at); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"%", "%q", "%H:%", "%E", "%EH", "%é", "%5Y", "%_d"} {
		_, err := NewTimePattern(text)
		var e *PatternError
		if !errors.As(err, &e) || e.Arg != -1 || e.Help == "" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// FuzzFormat checks that no format panics, and that the output matches the format.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{"%d", "%-08.3llx%%", "%s%t", "%rh%r%rx", "%", "%*d", "%hhd%c%p", "%é", "%\xff"} {
		f.Add(s)
	}
	values := []struct {
		arg    Operand
		values []any
	}{
		{arg(langtest.U64), []any{uint64(0), uint64(math.MaxUint64), nil}},
		{arg(langtest.S8), []any{int64(-128), int64(127)}},
		{arg(langtest.Flag), []any{true, false, nil}},
		{arg(langtest.Str16), []any{"", "a\x00\xff", nil}},
		{arg(langtest.Gid), []any{langtest.Addresses["fe80::1"], nil}},
		{arg(langtest.Opcode), []any{uint64(2), uint64(1 << 40)}},
		{arg(langtest.Errno), []any{int64(-22), int64(math.MinInt64)}},
		{arg(langtest.Ns), []any{uint64(math.MaxUint64)}},
		{pair, []any{[]any{uint64(2), "x"}, []any{nil, nil}, nil}},
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := NewTimePattern(text); err == nil {
			Strftime(text, time.Unix(0, 0))
		}
		for _, of := range values {
			for n := range 4 {
				args, one := make([]Operand, n), make([]any, n)
				for i := range args {
					args[i] = of.arg
				}
				pattern, err := NewPattern(text, args, false)
				if err != nil {
					var fe *PatternError
					if !errors.As(err, &fe) || fe.Arg >= n || fe.Msg == "" {
						t.Errorf("%q: %v", text, err)
					}
					continue
				}
				for _, v := range of.values {
					for i := range one {
						one[i] = v
					}
					if got := string(pattern.Append(nil, one)); strings.Contains(got, "%!") && !strings.Contains(text, "!") {
						t.Errorf("%q of %v: package fmt complains: %q", text, v, got)
					}
				}
			}
		}
	})
}

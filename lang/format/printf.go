package format

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"trace/lang/syntax"
	"trace/probes/event"
)

// This file is printf. The conversions are those that C and bpftrace have; package fmt does the work:
//
//	%d %i        a number as it is: the value of an enum, 0 or 1 for a boolean, nanoseconds, bytes
//	%u %x %X %o  the same, a negative one as two's complement: of 32 bits if it fits in them, otherwise of 64; %p is %#x of 64 bits
//	%c           the byte of that value, escaped like a string
//	%s           a string, the name of an enum or error number, an address, true or false, a tuple, a number; control characters of a string from
//	             outside the program are escaped, like \x1b, unless the user wants them raw
//	%t           any value as print writes it: read, 1.2ms, 4KiB, -EINVAL, fe80::1
//	%r           the bytes of a string or address, unprintable ones like \x0a; %rx all of them so; %rh like 0a fe
//	%gr          the names of the kernel's flags of allocations in a number, such as GFP_KERNEL
//	%%           a percent sign
//
// There are the flags -, 0, +, space and #, and width and precision as numbers: a width in characters, the precision of a text in
// bytes. Every number has 64 bits. Of the length modifiers hh and h keep 8 and 16 bits, and l, ll, L, j, z and t give 64 bits of a
// negative number. %t is a conversion unless one of d i u o x X follows. An absent value is a dash.

// Pattern is the format of a printf or of a time, checked against its arguments.
type Pattern struct {
	verbs  []verb // of a printf
	tail   string // the text after them
	layout string // of a time, for strftime
}

// Operand is an argument of a printf: its type, the types of its elements if it is a tuple, and whether the program itself
// determines it.
type Operand struct {
	Type  event.Type
	Elems []event.Type
	Own   bool
}

// verb prints one argument with package fmt.
type verb struct {
	before string // the text before it
	// spec is for package fmt, dash for an absent value.
	spec, dash string
	// operand returns what package fmt prints.
	operand func(v any) any
	// plain, if not nil, appends the same text without package fmt, which takes a third of the time of a line.
	plain func(b []byte, v any) []byte
	// own means that the program itself determines the argument.
	own bool
}

// PatternError is a mistake in a format, or in the argument with index Arg. Arg is -1 for the format itself.
type PatternError struct {
	Arg       int
	Msg, Help string
}

func (e *PatternError) Error() string { return e.Msg }

// conversionPattern has these groups: flags, width, precision, length modifier of an integer, its letter, or any other letters.
var conversionPattern = regexp.MustCompile(
	`(?s)^%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(?:(hh|ll|[hlLjzt])?([diuoxX])|(?:hh|ll|[hlLjz])?(gr|r[hx]?|.))`)

// NewPattern checks the format of a printf against its arguments. With raw, control characters are written unescaped. The error is
// a *PatternError.
func NewPattern(text string, args []Operand, raw bool) (*Pattern, error) {
	f := &Pattern{}
	for {
		before, _, found := strings.Cut(text, "%")
		f.tail += before
		if !found {
			break
		}
		text = text[len(before):]
		match := conversionPattern.FindStringSubmatch(text)
		if match == nil {
			return nil, &PatternError{-1, "the format ends within a conversion", "write %% for a percent sign"}
		}
		text = text[len(match[0]):]
		if match[6] == "%" {
			f.tail += "%"
			continue
		}
		v, err := newVerb(match, args, len(f.verbs), raw)
		if err != nil {
			return nil, err
		}
		v.before, f.tail = f.tail, ""
		f.verbs = append(f.verbs, v)
	}
	if n := len(f.verbs); n < len(args) {
		return nil, &PatternError{n, "the format has no conversion for this argument", "add one, such as %t"}
	}
	return f, nil
}

// newVerb checks a match of the pattern for the argument with the index n.
func newVerb(match []string, args []Operand, n int, raw bool) (verb, error) {
	written, flags, width, precision, modifier, letters := match[0], match[1], match[2], match[3], match[4], match[5]+match[6]
	c, known := conversions[letters]
	if !known {
		return verb{}, &PatternError{-1, fmt.Sprintf("there is no conversion %q", written),
			"use one of %d %i %u %x %X %o %c %p %s %t %r %rx %rh %gr, or %% for a percent sign"}
	}
	for _, size := range []string{width, precision} {
		if err := checkSize(written, size); err != nil {
			return verb{}, err
		}
	}
	if n >= len(args) {
		return verb{}, &PatternError{-1, "no argument for " + written, "add one, or write %% for a percent sign"}
	}
	if fits, help := conversionsOf(args[n]); !strings.Contains(fits, letters[:1]) {
		return verb{}, &PatternError{n, fmt.Sprintf("%s prints %s, not %s", written, c.prints, SortOf(args[n].Type)), help}
	}
	var b strings.Builder
	for _, flag := range flags {
		if strings.ContainsRune(c.flags, flag) {
			b.WriteRune(flag)
		}
	}
	v := verb{operand: c.operand(args[n], modifier), own: args[n].Own}
	if letters == "c" && !raw && !args[n].Own {
		v.operand = visibleCharacter
	}
	v.spec = "%" + b.String() + width
	switch {
	case !strings.Contains(written, "."):
	case c.verb == "s":
		v.operand = atMost(precision, args[n], v.operand)
	default:
		v.spec += "." + precision
	}
	v.spec += c.verb
	if written == "%"+modifier+letters {
		v.plain = plain(letters, modifier, args[n])
	}
	v.dash = "%" + width + "s"
	if strings.Contains(flags, "-") {
		v.dash = "%-" + width + "s"
	}
	return v, nil
}

// plain returns how an argument is appended whose conversion has no flags and no sizes, if that is the same as with package fmt.
func plain(letters, modifier string, e Operand) func(b []byte, v any) []byte {
	switch letters {
	case "d", "i":
		if modifier == "h" || modifier == "hh" {
			return nil
		}
		return func(b []byte, v any) []byte { return appendNumber(b, Numeric(v)) }
	case "s", "t":
		return func(b []byte, v any) []byte { return Append(b, e.Type, e.Elems, v) }
	}
	return nil
}

func appendNumber(b []byte, v any) []byte {
	switch n := v.(type) {
	case int64:
		return strconv.AppendInt(b, n, 10)
	case uint64:
		return strconv.AppendUint(b, n, 10)
	}
	return fmt.Appendf(b, "%d", v)
}

// atMost cuts a string after so many of its own bytes, and other text after so many printed bytes; package fmt counts characters.
func atMost(precision string, e Operand, operand func(v any) any) func(v any) any {
	n, _ := strconv.Atoi(precision) // "%.s" is "%.0s"
	if e.Type.Kind != event.String {
		return func(v any) any {
			text := fmt.Appendf(nil, "%s", operand(v))
			return text[:min(n, len(text))]
		}
	}
	return func(v any) any {
		if text, ok := v.(Verbatim); ok {
			return operand(text[:min(n, len(text))])
		}
		text := v.(string)
		return operand(text[:min(n, len(text))])
	}
}

// maxSize limits widths and precisions: package fmt does not print larger ones.
const maxSize = 1000

func checkSize(written, size string) error {
	if size == "*" {
		return &PatternError{-1, fmt.Sprintf("%s takes a width from an argument", written), "write it as a number, like %8d"}
	}
	if n, err := strconv.Atoi(size); size != "" && (err != nil || n > maxSize) {
		return &PatternError{-1, fmt.Sprintf("%s is too wide", written), fmt.Sprintf("use at most %d", maxSize)}
	}
	return nil
}

// conversionsOf returns the first letters of the conversions that can print e, and advice on which to use.
func conversionsOf(e Operand) (letters, help string) {
	switch e.Type.Kind {
	case event.Bool:
		return "diuxXopcstg", "write %s for true and false, or %d for 1 and 0"
	case event.String:
		return "str", "write %s"
	case event.GID:
		return "str", "write %s for the address, or %rh for its bytes"
	case event.Int, event.Uint:
		if event.EnumOf(&e.Type) != nil {
			return "diuxXopcstg", "write %s for the name, or %d for the number"
		}
		return "diuxXopcstg", numberHelp(e.Type.Unit)
	}
	return "st", "write %t" // a tuple, a list or a stack
}

func numberHelp(u event.Unit) string {
	switch u {
	case event.Nanoseconds:
		return "write %d for nanoseconds, or %t for one like 1.2ms"
	case event.Bytes:
		return "write %d for bytes, or %t for one like 4KiB"
	case event.Hex:
		return "write %x, or %d"
	}
	return "write %d"
}

// conversions maps the letters of a conversion to its description.
var conversions = map[string]struct {
	prints  string // in messages
	flags   string // the flags that have an effect
	verb    string // of package fmt
	operand func(e Operand, modifier string) func(v any) any
}{
	"d":  {"a number", "-+ 0", "d", signedNumber},
	"i":  {"a number", "-+ 0", "d", signedNumber},
	"u":  {"a number", "-0", "d", unsignedNumber},
	"x":  {"a number", "-0#", "x", unsignedNumber},
	"X":  {"a number", "-0#", "X", unsignedNumber},
	"o":  {"a number", "-0#", "o", unsignedNumber},
	"p":  {"a number", "-", "s", pointer},
	"c":  {"the character of a number", "-", "s", character},
	"s":  {"text and names", "-", "s", shown},
	"t":  {"any value", "-", "s", shown},
	"r":  {"the bytes of a string or address", "-", "s", escaped(true)},
	"rx": {"the bytes of a string or address", "-", "s", escaped(false)},
	"rh": {"the bytes of a string or address", "-", "s", hexadecimal},
	"gr": {"flags of an allocation", "-", "s", allocation},
}

// signedNumber converts a number. The modifiers hh and h cut it, as in C.
func signedNumber(_ Operand, modifier string) func(v any) any {
	switch modifier {
	case "hh":
		return func(v any) any { return int8(event.To[int64](Numeric(v))) }
	case "h":
		return func(v any) any { return int16(event.To[int64](Numeric(v))) }
	}
	return Numeric
}

func unsignedNumber(e Operand, modifier string) func(v any) any {
	switch modifier {
	case "hh":
		return func(v any) any { return uint8(event.To[uint64](Numeric(v))) }
	case "h":
		return func(v any) any { return uint16(event.To[uint64](Numeric(v))) }
	case "":
		return func(v any) any { return word(e.Type, Numeric(v)) }
	}
	return func(v any) any { return event.To[uint64](Numeric(v)) }
}

// word returns the bits of a number as C promotes it: a negative one that fits in 32 bits has 32. A number with a width of its own
// keeps it.
func word(t event.Type, v any) uint64 {
	if t.Unit == event.Hex || t.Enum != nil {
		return Bits(t, v)
	}
	if n, ok := v.(int64); ok && math.MinInt32 <= n && n < 0 {
		return uint64(uint32(n))
	}
	return event.To[uint64](v)
}

// Numeric converts a boolean to a number. It returns other values unchanged.
func Numeric(v any) any {
	switch v {
	case true:
		return uint64(1)
	case false:
		return uint64(0)
	}
	return v
}

func allocation(Operand, string) func(v any) any {
	return func(v any) any { return gfp(event.To[uint64](Numeric(v))) }
}

func pointer(e Operand, _ string) func(v any) any {
	return func(v any) any {
		if bits := Bits(e.Type, Numeric(v)); bits != 0 {
			return fmt.Sprintf("%#x", bits)
		}
		return "0"
	}
}

func character(Operand, string) func(v any) any {
	return func(v any) any { return []byte{byte(event.To[uint64](Numeric(v)))} }
}

// visibleCharacter escapes a character from outside the program.
func visibleCharacter(v any) any {
	return syntax.AppendVisible(nil, string([]byte{byte(event.To[uint64](Numeric(v)))}))
}

func shown(e Operand, _ string) func(v any) any {
	return func(v any) any { return Append(nil, e.Type, e.Elems, v) }
}

// escaped writes bytes like \x0a. With keep, printable bytes are not escaped.
func escaped(keep bool) func(Operand, string) func(v any) any {
	return func(Operand, string) func(v any) any {
		return func(v any) any {
			var b []byte
			for _, c := range []byte(bytesOf(v)) {
				if keep && ' ' <= c && c <= '~' {
					b = append(b, c)
				} else {
					b = fmt.Appendf(b, `\x%02x`, c)
				}
			}
			return b
		}
	}
}

func hexadecimal(Operand, string) func(v any) any {
	return func(v any) any { return fmt.Appendf(nil, "% x", bytesOf(v)) }
}

// bytesOf returns the bytes of a string or an address.
func bytesOf(v any) string {
	if text, ok := v.(Verbatim); ok {
		return string(text)
	}
	return v.(string)
}

// Append appends the text for values, one for each argument.
func (f *Pattern) Append(b []byte, values []any) []byte {
	for i, v := range f.verbs {
		b = v.append(append(b, v.before...), values[i])
	}
	return append(b, f.tail...)
}

// AppendCommand appends the text for values as a command of a shell: what the program itself does not determine is a part of a word, whatever is in it. A
// process may be called `;id`.
func (f *Pattern) AppendCommand(b []byte, values []any) []byte {
	for i, v := range f.verbs {
		b = append(b, v.before...)
		if v.own {
			b = v.append(b, values[i])
			continue
		}
		for _, c := range v.append(nil, values[i]) {
			if c < 0x80 && !harmless[c] {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
	}
	return append(b, f.tail...)
}

// harmless are the characters of ASCII that mean nothing to a shell, wherever they are. A backslash before another one takes its meaning away, also where the
// program has it in quotes: within double ones the shell may keep the backslash, and single ones end, without a partner.
var harmless = func() (all [0x80]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+,-") {
		all[c] = true
	}
	return all
}()

func (v verb) append(b []byte, value any) []byte {
	switch {
	case value == nil:
		return fmt.Appendf(b, v.dash, "-")
	case v.plain != nil:
		return v.plain(b, value)
	}
	return fmt.Appendf(b, v.spec, v.operand(value))
}

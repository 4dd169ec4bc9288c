package syntax

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	eof      kind = iota
	ident         // a name, with dots for fields: qp.state; keywords too
	variable      // $name
	mapname       // @name, or @ alone
	number
	fraction // a decimal one without a unit; msg and help explain why most places reject it
	element  // .0, a member of a tuple
	str
	op
	bad // not a token; msg and help explain why
)

type token struct {
	kind kind
	span Span
	text string // as written; the value of a str
	num  uint64
	nl   bool // a newline precedes it
	msg  string
	help string
	// comments are the comments before the token, including comments on the previous line.
	comments []Comment
}

// is reports whether the token is the operator or keyword text.
func (t token) is(text string) bool {
	return (t.kind == op || t.kind == ident) && t.text == text
}

// lexer yields the tokens of src one by one. It is a value: assigning a saved copy goes back.
type lexer struct {
	src string
	pos int
}

func (l *lexer) next() token {
	var t token
	l.space(&t)
	start := l.pos
	switch rest := l.src[l.pos:]; {
	case rest == "":
	case isLetter(rest[0]):
		l.name(&t)
	case isDigit(rest[0]):
		l.number(&t)
	case rest[0] == '.' && len(rest) > 1 && isDigit(rest[1]):
		l.element(&t)
	case rest[0] == '$' || rest[0] == '@':
		l.sigil(&t)
	case rest[0] == '"' || rest[0] == '\'' || rest[0] == '`':
		l.str(&t)
	default:
		l.operator(&t)
	}
	t.span = Span{start, l.pos}
	if l.pos-start > MaxString {
		t.fail(fmt.Sprintf("a word or a string of more than %d bytes", MaxString), "")
	}
	return t
}

// MaxString is how many bytes a string may have, in a program and as a value.
const MaxString = 64 << 10

// space skips blanks and comments. It notes in t the comments and whether there was a newline.
func (l *lexer) space(t *token) {
	for l.pos < len(l.src) {
		switch l.src[l.pos] {
		case '\n':
			t.nl = true
			l.pos++
		case ' ', '\t', '\r':
			l.pos++
		default:
			n := l.comment()
			if n == 0 {
				return
			}
			text := strings.TrimRight(l.src[l.pos:l.pos+n], " \t\r")
			t.comments = append(t.comments, Comment{text, Span{l.pos, l.pos + len(text)}})
			t.nl = t.nl || strings.Contains(text, "\n")
			l.pos += n
		}
	}
}

// comment returns the length of the current comment, or 0. An unclosed comment does not count, and neither does a C directive.
func (l *lexer) comment() int {
	rest := l.src[l.pos:]
	atStart := l.pos == 0 || l.src[l.pos-1] == '\n'
	switch {
	case strings.HasPrefix(rest, "//"), rest[0] == '#' && atStart && directive(rest) == "":
		line, _, _ := strings.Cut(rest, "\n")
		return len(line)
	case strings.HasPrefix(rest, "/*"):
		if end := strings.Index(rest[2:], "*/"); end >= 0 {
			return end + 4
		}
	}
	return 0
}

// directives maps C directives to a message and advice.
var directives = map[string][2]string{
	"#include": {"C headers are not available", "they are not needed: trace -lv lists the fields of each probe"},
	"#define":  {"C macros are not available", "declare param name = 10ms, and read it as $name"},
}

// directive returns the directive that text begins with, or "".
func directive(text string) string {
	word := text[:1]
	for len(word) < len(text) && isLetter(text[len(word)]) {
		word = text[:len(word)+1]
	}
	if _, ok := directives[word]; !ok {
		return ""
	}
	return word
}

// name reads a name. A dot belongs to it only before a letter, so a..b is a range.
func (l *lexer) name(t *token) {
	start := l.pos
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		dot := c == '.' && l.pos+1 < len(l.src) && isLetter(l.src[l.pos+1])
		if !isLetter(c) && !isDigit(c) && !dot {
			break
		}
		l.pos++
	}
	t.kind, t.text = ident, l.src[start:l.pos]
}

// sigil reads $name or @name, which have no dots. @ alone is a name too.
func (l *lexer) sigil(t *token) {
	start := l.pos
	for l.pos++; l.pos < len(l.src) && (isLetter(l.src[l.pos]) || isDigit(l.src[l.pos])); l.pos++ {
	}
	t.text = l.src[start:l.pos]
	switch name := t.text[1:]; {
	case t.text[0] == '@' && (name == "" || isLetter(name[0])):
		t.kind = mapname
	case t.text[0] == '@':
		t.fail("the name of a map must begin with a letter", "write @_"+name)
	case name == "" && strings.HasPrefix(l.src[l.pos:], "#"):
		l.pos++
		t.kind, t.text = variable, ArgumentCount
	case name == "":
		t.fail("a variable must have a name", "write $name")
	case isDigit(name[0]) && !IsArgument(t.text):
		t.fail("the name of a variable must begin with a letter", "write $name, or $1 for the first argument of the program")
	default:
		t.kind = variable
	}
}

// ArgumentCount is how many arguments the command line gives the program.
const ArgumentCount = "$#"

// IsArgument reports whether a word is an argument of the program by its number, $1 for the first, or how many there are.
func IsArgument(word string) bool {
	digits, ok := strings.CutPrefix(word, "$")
	return word == ArgumentCount || ok && isDecimal(digits) && digits[0] != '0'
}

// element reads .0: the dot and only digits, so x.0.1 has two elements.
func (l *lexer) element(t *token) {
	start := l.pos
	for l.pos++; l.pos < len(l.src) && isDigit(l.src[l.pos]); l.pos++ {
	}
	t.kind, t.text = element, l.src[start:l.pos]
	var err error
	if t.num, err = strconv.ParseUint(t.text[1:], 10, 16); err != nil {
		t.fail("the number of the element is too large", "")
	}
}

// units of numbers. Durations are in nanoseconds, sizes in bytes.
var units = map[string]uint64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9,
	"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
}

func (l *lexer) number(t *token) {
	start := l.pos
	for l.pos < len(l.src) {
		c, size := utf8.DecodeRuneInString(l.src[l.pos:])
		fraction := c == '.' && l.pos+1 < len(l.src) && isDigit(l.src[l.pos+1])
		if c >= utf8.RuneSelf && c != 'µ' && c != 'μ' || c < utf8.RuneSelf && !isLetter(byte(c)) && !isDigit(byte(c)) && !fraction {
			break
		}
		l.pos += size
	}
	t.text = l.src[start:l.pos]
	var msg, help string
	t.num, msg, help = parseNumber(t.text)
	switch {
	case msg == "":
		t.kind = number
	case msg == noUnit:
		t.fail(t.text+" "+msg, help)
		t.kind = fraction
	default:
		t.fail(t.text+" "+msg, help)
	}
}

const noUnit = "has a fraction but no unit"

// parseNumber returns the value of an integer, a duration or a size, or describes what is wrong with it.
func parseNumber(text string) (v uint64, msg, help string) {
	const overflow, malformed = "does not fit in 64 bits", "is not a number"
	if plain := strings.TrimRight(text, "uUlL"); integerSuffixes[strings.ToLower(text[len(plain):])] {
		text = plain
	}
	if len(text) > 1 && text[0] == '0' && strings.IndexByte("xXob_0123456789", text[1]) >= 0 {
		if strings.IndexByte("xXob", text[1]) < 0 {
			return 0, "is ambiguous", "write 0o for an octal number, or no leading 0 for a decimal one"
		}
		v, err := strconv.ParseUint(text, 0, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return 0, overflow, ""
		case err != nil:
			return 0, malformed, ""
		}
		return v, "", ""
	}
	digits, unit := cutUnit(text)
	scale := uint64(1)
	switch exponent, ok := strings.CutPrefix(unit, "e"); {
	case ok && isDecimal(exponent):
		scale, unit = powerOfTen(exponent), ""
		if scale == 0 {
			return 0, overflow, ""
		}
	case unit != "":
		scale = units[unit]
	}
	switch {
	case scale == 0:
		return 0, fmt.Sprintf("has the unknown unit %q", unit), unitHelp(digits, unit)
	case strings.Count(digits, ".") > 1 || strings.Contains(digits, "__") || strings.HasSuffix(digits, "_") || len(digits) > 64:
		return 0, malformed, ""
	case unit == "" && strings.Contains(digits, "."):
		return 0, noUnit, "numbers are integers, like 1500 or 1.5ms"
	}
	exact, ok := new(big.Rat).SetString(strings.ReplaceAll(digits, "_", ""))
	if !ok {
		return 0, malformed, ""
	}
	exact.Mul(exact, new(big.Rat).SetInt(new(big.Int).SetUint64(scale)))
	switch {
	case !exact.IsInt():
		return 0, "is not a whole number", "durations are whole nanoseconds, and sizes whole bytes"
	case !exact.Num().IsUint64():
		return 0, overflow, ""
	}
	return exact.Num().Uint64(), "", ""
}

// integerSuffixes are C's. They mean nothing, because every number has 64 bits.
var integerSuffixes = map[string]bool{"u": true, "l": true, "ul": true, "lu": true, "ll": true, "ull": true, "llu": true}

func isDecimal(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// powerOfTen returns 10 to a power, or 0 if it does not fit.
func powerOfTen(exponent string) uint64 {
	n, err := strconv.Atoi(exponent)
	if err != nil || n > 19 {
		return 0
	}
	scale := uint64(1)
	for range n {
		scale *= 10
	}
	return scale
}

// unitHelp lists the units. It begins with units that are spelled differently: 10kb is 10KB or 10KiB.
func unitHelp(digits, unit string) string {
	var like []string
	for _, known := range []string{"ns", "us", "ms", "KB", "KiB", "MB", "MiB", "GB", "GiB", "TB", "TiB", "PB", "PiB"} {
		spelled := []string{known, strings.TrimSuffix(known, "B"), strings.TrimSuffix(known, "iB")}
		if slices.ContainsFunc(spelled, func(s string) bool { return strings.EqualFold(s, unit) }) {
			like = append(like, digits+known)
		}
	}
	if like != nil {
		return "write " + strings.Join(like, " or ")
	}
	return "units are ns us ms s m h d, B KB MB GB TB PB and KiB MiB GiB TiB PiB"
}

// cutUnit separates a decimal number from its unit.
func cutUnit(text string) (digits, unit string) {
	digits = text
	if end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && r != '_' && (r < '0' || r > '9') }); end >= 0 {
		digits, unit = text[:end], text[end:]
	}
	return digits, unit
}

// unquoted decodes an escape. In C, one of octal digits has up to three.
func unquoted(text string, quote byte) (r rune, multibyte bool, tail string, err error) {
	digits := text[1:min(4, len(text))]
	digits = digits[:len(digits)-len(strings.TrimLeft(digits, "01234567"))]
	if n, err := strconv.ParseUint(digits, 8, 8); err == nil {
		return rune(n), false, text[1+len(digits):], nil
	}
	return strconv.UnquoteChar(text, quote)
}

// str reads a string. Unescaped bytes stand for themselves, valid UTF-8 or not.
func (l *lexer) str(t *token) {
	quote := l.src[l.pos]
	l.pos++
	var b strings.Builder
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == quote:
			l.pos++
			t.kind, t.text = str, b.String()
			return
		case c == '\n' && quote != '`':
			t.fail("the string is not closed", "close it with "+string(quote))
			return
		case c == '\\' && quote != '`':
			r, multibyte, tail, err := unquoted(l.src[l.pos:], quote)
			if err != nil {
				l.pos++
				t.fail("unknown escape in the string", `escapes are \n \t \r \\ \" \' \NNN \xHH \uHHHH; strings in backticks have none`)
				return
			}
			l.pos = len(l.src) - len(tail)
			if multibyte {
				b.WriteRune(r)
			} else {
				b.WriteByte(byte(r))
			}
		default:
			b.WriteByte(c)
			l.pos++
		}
	}
	t.fail("the string is not closed", "close it with "+string(quote))
}

// operators, longer ones before their prefixes.
var operators = []string{
	"<<=", ">>=",
	"**", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "..", "??",
	"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "->",
	"+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "=", "?", ":", "(", ")", "[", "]", "{", "}", ",", ";", ".", "#",
}

func (l *lexer) operator(t *token) {
	rest := l.src[l.pos:]
	switch {
	case strings.HasPrefix(rest, "/*"):
		l.pos = len(l.src)
		t.fail("the comment is not closed", "close it with */")
		return
	case rest[0] == '#' && directive(rest) != "":
		line, _, _ := strings.Cut(rest, "\n")
		l.pos += len(line)
		t.fail(directives[directive(rest)][0], directives[directive(rest)][1])
		return
	}
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			l.pos += len(o)
			t.kind, t.text = op, o
			return
		}
	}
	r, size := utf8.DecodeRuneInString(rest)
	l.pos += size
	t.fail(fmt.Sprintf("unexpected character %q", r), "")
}

func (t *token) fail(msg, help string) { t.kind, t.msg, t.help = bad, msg, help }

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

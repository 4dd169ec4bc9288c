package syntax

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	eof   kind = iota
	ident      // a name, with dots for fields: qp.state; keywords too
	number
	str
	op
	bad // not a token; msg and help say why
)

type token struct {
	kind kind
	span Span
	text string // of the source; the value of a str
	num  uint64
	nl   bool // a newline stands before it
	msg  string
	help string
}

// is tells whether the token is the operator or keyword text.
func (t token) is(text string) bool {
	return (t.kind == op || t.kind == ident) && t.text == text
}

// lexer yields the tokens of src one by one. It is a value: a copy is a way back.
type lexer struct {
	src string
	pos int
}

func (l *lexer) next() token {
	t := token{nl: l.space()}
	start := l.pos
	switch rest := l.src[l.pos:]; {
	case rest == "":
	case isLetter(rest[0]):
		l.name(&t)
	case isDigit(rest[0]):
		l.number(&t)
	case rest[0] == '"' || rest[0] == '\'' || rest[0] == '`':
		l.str(&t)
	default:
		l.operator(&t)
	}
	t.span = Span{start, l.pos}
	return t
}

// space skips blanks and comments and tells whether a newline was among them.
func (l *lexer) space() (nl bool) {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		atStart := l.pos == 0 || l.src[l.pos-1] == '\n'
		switch {
		case rest[0] == '\n':
			nl = true
			l.pos++
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r':
			l.pos++
		case strings.HasPrefix(rest, "//"), rest[0] == '#' && atStart:
			line, _, _ := strings.Cut(rest, "\n")
			l.pos += len(line)
		default:
			return nl
		}
	}
	return nl
}

// name reads a name. A dot belongs to it only before a letter, so that a..b is a range.
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

// units of a number. Durations are nanoseconds, sizes are bytes.
var units = map[string]uint64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9,
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
	if t.num, msg, help = parseNumber(t.text); msg != "" {
		t.fail(t.text+" "+msg, help)
		return
	}
	t.kind = number
}

// parseNumber returns the value of an integer, a duration or a size, or what is wrong with it.
func parseNumber(text string) (v uint64, msg, help string) {
	const overflow, malformed = "does not fit 64 bits", "is not a number"
	if len(text) > 1 && text[0] == '0' && strings.IndexByte("xXob_0123456789", text[1]) >= 0 {
		if strings.IndexByte("xXob", text[1]) < 0 {
			return 0, "is not clear", "an octal number begins with 0o, a decimal one not with 0"
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
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && r != '_' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	digits, unit := text[:end], text[end:]
	scale := uint64(1)
	if unit != "" {
		scale = units[unit]
	}
	switch {
	case scale == 0:
		return 0, fmt.Sprintf("has the unknown unit %q", unit), "units are ns us ms s m h, B KB MB GB TB PB and KiB MiB GiB TiB PiB"
	case unit == "" && strings.Contains(digits, "."):
		return 0, "has a fraction but no unit", "numbers are integers; 1.5ms is one"
	case strings.Count(digits, ".") > 1 || strings.Contains(digits, "__") || strings.HasSuffix(digits, "_") || len(digits) > 64:
		return 0, malformed, ""
	}
	exact, ok := new(big.Rat).SetString(strings.ReplaceAll(digits, "_", ""))
	if !ok {
		return 0, malformed, ""
	}
	exact.Mul(exact, new(big.Rat).SetInt(new(big.Int).SetUint64(scale)))
	switch {
	case !exact.IsInt():
		return 0, "is not a whole number", "durations are in nanoseconds and sizes in bytes"
	case !exact.Num().IsUint64():
		return 0, overflow, ""
	}
	return exact.Num().Uint64(), "", ""
}

// str reads a string. Bytes that are not escaped stand for themselves, valid UTF-8 or not.
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
			r, multibyte, tail, err := strconv.UnquoteChar(l.src[l.pos:], quote)
			if err != nil {
				l.pos++
				t.fail("unknown escape in the string", `escapes are \n \t \r \\ \" \' \xHH \uHHHH; a backtick string has none`)
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

// operators, longer ones first where one begins with another.
var operators = []string{
	"**", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "..", "??",
	"+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "?", ":", "(", ")", "[", "]", "{", "}", ",", ";",
}

func (l *lexer) operator(t *token) {
	rest := l.src[l.pos:]
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			l.pos += len(o)
			t.kind, t.text = op, o
			return
		}
	}
	r, size := utf8.DecodeRuneInString(rest)
	l.pos += size
	help := ""
	if r == '=' {
		help = "to compare write =="
	}
	t.fail(fmt.Sprintf("unexpected character %q", r), help)
}

func (t *token) fail(msg, help string) { t.kind, t.msg, t.help = bad, msg, help }

// probe reads `group:name` at pos, without blanks. The group may hold `*`, but no `?`: then a?b:c is a condition.
func (l lexer) probe(pos int) (ref ProbeRef, ok bool) {
	run := func(from int, extra string) int {
		for from < len(l.src) && (isLetter(l.src[from]) || isDigit(l.src[from]) || strings.IndexByte(extra, l.src[from]) >= 0) {
			from++
		}
		return from
	}
	colon := run(pos, "*")
	if colon == pos || colon == len(l.src) || l.src[colon] != ':' {
		return ProbeRef{}, false
	}
	end := run(colon+1, "*?")
	return ProbeRef{Group: l.src[pos:colon], Name: l.src[colon+1 : end], Span: Span{pos, end}}, true
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

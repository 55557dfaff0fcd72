package querytext

import (
	"strconv"
	"strings"
)

// kind is what a stretch of SQL text is to us.
type kind uint8

const (
	other     kind = iota // copied as it is
	word                  // identifier or keyword, copied
	parameter             // $1, copied
	literal               // replaced
	comment               // dropped
)

// maxParameter is the highest parameter number the protocol can carry; what
// looks like a higher one does not move our numbering.
const maxParameter = 65535

// Normalize replaces the literals of sql by parameters and drops its comments.
func Normalize(sql string) string {
	next := 1
	for rest := sql; rest != ""; {
		k, n := token(rest)
		if k == parameter {
			if p, err := strconv.Atoi(rest[1:n]); err == nil && p >= next && p <= maxParameter {
				next = p + 1
			}
		}
		rest = rest[n:]
	}

	var b strings.Builder
	b.Grow(len(sql))
	last := byte(' ')
	write := func(s string) {
		if s != "" {
			b.WriteString(s)
			last = s[len(s)-1]
		}
	}
	for rest := sql; rest != ""; {
		k, n := token(rest)
		switch k {
		case literal:
			if isWord(last) { // else $n would read as part of what is before it
				write(" ")
			}
			write("$" + strconv.Itoa(next))
			next++
		case comment:
			if last != ' ' && last != '\n' {
				write(" ")
			}
		case word:
			if last >= '0' && last <= '9' { // nor may what follows $n
				write(" ")
			}
			write(rest[:n])
		default:
			write(rest[:n])
		}
		rest = rest[n:]
	}
	return b.String()
}

// token returns the kind and length of the first token of s, which is not
// empty. The length is at least 1: a caller always gets on.
func token(s string) (kind, int) {
	c := s[0]
	switch {
	case c == '\'':
		return literal, quoted(s, 0, false)
	case c == '"':
		return other, doubleQuoted(s, 0)
	case c == '$':
		return dollar(s)
	case strings.HasPrefix(s, ".."): // of a range such as 1..10
		return other, 2
	case isDigit(c), c == '.' && len(s) > 1 && isDigit(s[1]):
		return literal, number(s)
	case strings.HasPrefix(s, "--"):
		if i := strings.IndexAny(s, "\n\r"); i >= 0 {
			return comment, i
		}
		return comment, len(s)
	case strings.HasPrefix(s, "/*"):
		return comment, blockComment(s)
	case isWordStart(c):
		return fromWord(s)
	default:
		return other, 1
	}
}

// fromWord reads an identifier, or the literal that it is the prefix of.
func fromWord(s string) (kind, int) {
	n := 1
	for n < len(s) && isWord(s[n]) {
		n++
	}
	if n != 1 || len(s) == 1 {
		return word, n
	}
	switch s[0] {
	case 'e', 'E':
		if s[1] == '\'' {
			return literal, quoted(s, 1, true)
		}
	case 'b', 'B', 'x', 'X', 'n', 'N':
		if s[1] == '\'' {
			return literal, quoted(s, 1, false)
		}
	case 'u', 'U':
		if strings.HasPrefix(s[1:], "&'") {
			return literal, quoted(s, 2, false)
		}
		if strings.HasPrefix(s[1:], `&"`) {
			return word, doubleQuoted(s, 2)
		}
	}
	return word, 1
}

// quoted returns the end of the string whose opening quote is at s[at]. A
// doubled quote is part of it, with escapes also one behind a backslash.
func quoted(s string, at int, escapes bool) int {
	for i := at + 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == '\'':
			if i+1 < len(s) && s[i+1] == '\'' {
				i++
				continue
			}
			return i + 1
		}
	}
	return len(s)
}

func doubleQuoted(s string, at int) int {
	if i := strings.IndexByte(s[at+1:], '"'); i >= 0 {
		return at + 1 + i + 1 // a doubled quote simply begins another stretch
	}
	return len(s)
}

// dollar reads $1, $tag$ … $tag$, or a lone $.
func dollar(s string) (kind, int) {
	n := 1
	if n < len(s) && isDigit(s[n]) {
		for n < len(s) && isDigit(s[n]) {
			n++
		}
		return parameter, n
	}
	if n < len(s) && isWordStart(s[n]) {
		for n < len(s) && isWord(s[n]) && s[n] != '$' {
			n++
		}
	}
	if n >= len(s) || s[n] != '$' {
		return other, 1
	}
	tag := s[:n+1]
	if i := strings.Index(s[n+1:], tag); i >= 0 {
		return literal, n + 1 + i + len(tag)
	}
	return literal, len(s)
}

// number reads an integer or decimal with all that sticks to it: exponents,
// 0x and the like, underscores, and trailing junk, which is safer gone.
func number(s string) int {
	n := 0
	for n < len(s) {
		switch c := s[n]; {
		case isDigit(c), isWordStart(c):
			n++
		case c == '.' && !strings.HasPrefix(s[n:], ".."):
			n++
		case (c == '+' || c == '-') && n > 0 && (s[n-1] == 'e' || s[n-1] == 'E') &&
			n+1 < len(s) && isDigit(s[n+1]) && !isPrefixed(s):
			n++
		default:
			return n
		}
	}
	return n
}

// isPrefixed tells 0x1e-5, a subtraction, from 1e-5.
func isPrefixed(s string) bool {
	return len(s) > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')
}

// blockComment returns the end of the comment at the start of s; they nest.
func blockComment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch {
		case s[i] == '/' && s[i+1] == '*':
			depth++
			i++
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

func isWord(c byte) bool { return isWordStart(c) || isDigit(c) || c == '$' }

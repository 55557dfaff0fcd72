package querytext

import (
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"
)

// Mode says how much of a statement is kept.
type Mode uint8

// The modes of the setting query_text.
const (
	Full Mode = iota
	Normalized
	Off
)

// ParseMode reads the setting.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "full":
		return Full, nil
	case "normalized":
		return Normalized, nil
	case "off":
		return Off, nil
	default:
		return Off, fmt.Errorf("must be full, normalized or off, not %q", s)
	}
}

func (m Mode) String() string {
	switch m {
	case Full:
		return "full"
	case Normalized:
		return "normalized"
	default:
		return "off"
	}
}

// Keep returns what is stored of the statement raw: at most maxBytes of valid
// UTF-8, "" in mode Off.
func Keep(raw string, m Mode, maxBytes int) string {
	switch m {
	case Full:
		return Sanitize(raw, maxBytes)
	case Normalized:
		return Sanitize(Normalize(raw), maxBytes)
	default:
		return ""
	}
}

// Policy is what the settings say about statements.
type Policy struct {
	Mode     Mode
	MaxBytes int
}

// Keep returns what is kept of raw. A public text holds nothing private and is
// kept in any mode: that an autovacuum worker must not yield stands nowhere but
// in its text.
func (p Policy) Keep(raw string, public bool) string {
	if public {
		return Keep(raw, Full, p.MaxBytes)
	}
	return Keep(raw, p.Mode, p.MaxBytes)
}

// Hash tells statements apart where the server gives no query id. It is of
// the normalized text, so that other literals do not make another statement
// and cannot be found out from it; 0 for no text. The same text has the same
// hash in every life of the worker.
func Hash(raw string) uint64 {
	if raw == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(Normalize(raw)))
	return h.Sum64()
}

// Sanitize ends raw at its first NUL, escapes bytes that are not UTF-8 as
// \xNN and cuts the result to maxBytes at the end of a character.
func Sanitize(raw string, maxBytes int) string {
	if i := strings.IndexByte(raw, 0); i >= 0 {
		raw = raw[:i]
	}
	if len(raw) <= maxBytes && utf8.ValidString(raw) {
		return raw
	}
	var b strings.Builder
	for len(raw) > 0 {
		r, n := utf8.DecodeRuneInString(raw)
		piece := raw[:n]
		if r == utf8.RuneError && n == 1 {
			piece = fmt.Sprintf(`\x%02X`, raw[0])
		}
		if b.Len()+len(piece) > maxBytes {
			break
		}
		b.WriteString(piece)
		raw = raw[n:]
	}
	return b.String()
}

// ASCII escapes all that is not ASCII as \uXXXX or \UXXXXXXXX, for a history
// database whose encoding cannot hold every character. s must be valid UTF-8.
func ASCII(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] < utf8.RuneSelf
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	return b.String()
}

package querytext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalize(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain string", `SELECT * FROM t WHERE a = 'x'`, `SELECT * FROM t WHERE a = $1`},
		{"doubled quote", `SELECT 'it''s', 2`, `SELECT $1, $2`},
		{"backslash is no escape", `SELECT 'c:\', 'd'`, `SELECT $1, $2`},
		{"escape string", `SELECT E'it\'s', e'a\\', 'b'`, `SELECT $1, $2, $3`},
		{"unicode string", `SELECT U&'\0041', u&"name"`, `SELECT $1, u&"name"`},
		{"bits and hex", `SELECT B'101', X'ff', N'a'`, `SELECT $1, $2, $3`},
		{"dollar quote", `DO $$ BEGIN x := 'a'; END $$`, `DO $1`},
		{"tagged dollar quote", `SELECT $a$ $b$ 'x' $a$, 1`, `SELECT $1, $2`},
		{"dollar inside identifier", `SELECT a$$b, c$1`, `SELECT a$$b, c$1`},
		{"numbers", `SELECT 1, 1.5, .5, 1e10, 1.5E-3, 0xFF, 1_000`, `SELECT $1, $2, $3, $4, $5, $6, $7`},
		{"hex minus", `SELECT 0x1e-5`, `SELECT $1-$2`},
		{"negative", `SELECT -5, - 6, a-1`, `SELECT -$1, - $2, a-$3`},
		{"range", `FOR i IN 1..10`, `FOR i IN $1..$2`},
		{"digits in identifiers", `SELECT t1.c2 FROM t1`, `SELECT t1.c2 FROM t1`},
		{"quoted identifier", `SELECT "a'b", "x""5" FROM "T"`, `SELECT "a'b", "x""5" FROM "T"`},
		{"parameters stay apart", `SELECT $1, 5, $2`, `SELECT $1, $3, $2`},
		{"parameter out of range", `SELECT $99999999999999999999, 5`, `SELECT $99999999999999999999, $1`},
		{"line comment", "SELECT 1 -- 'secret'\nFROM t", "SELECT $1 \nFROM t"},
		{"nested comment", `SELECT/* a /* 'b' */ c */1`, `SELECT $1`},
		{"cut string", `SELECT 'secr`, `SELECT $1`},
		{"cut escape string", `SELECT E'secr\`, `SELECT $1`},
		{"cut dollar quote", `SELECT $x$secr`, `SELECT $1`},
		{"cut comment", `SELECT 1 /* secr`, `SELECT $1 `},
		{"cut line comment", `SELECT 1 -- secr`, `SELECT $1 `},
		{"type cast", `SELECT '1 day'::interval`, `SELECT $1::interval`},
		{"typed literal", `SELECT date'2020-01-01'`, `SELECT date $1`},
		{"password", `ALTER ROLE r PASSWORD 'hunter2'`, `ALTER ROLE r PASSWORD $1`},
		{"keywords stay", `SELECT true, null`, `SELECT true, null`},
		{"not ascii", `SELECT größe FROM t WHERE ö = 'ß'`, `SELECT größe FROM t WHERE ö = $1`},
		{"empty", ``, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Normalize(tt.in); got != tt.want {
				t.Errorf("Normalize(%q)\n got %q\nwant %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestSanitize(t *testing.T) {
	tests := []struct {
		name, in string
		max      int
		want     string
	}{
		{"fits", "abc", 3, "abc"},
		{"cut", "abcd", 3, "abc"},
		{"cut before a character of two bytes", "abö", 3, "ab"},
		{"character fits exactly", "abö", 4, "abö"},
		{"nul", "ab\x00cd", 10, "ab"},
		{"latin1", "gr\xf6\xdfe", 20, `gr\xF6\xDFe`},
		{"escape does not fit", "ab\xf6", 5, "ab"},
		{"replacement character itself", "a\uFFFD", 10, "a\uFFFD"},
		{"nothing allowed", "abc", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Sanitize(tt.in, tt.max); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestKeep(t *testing.T) {
	tests := []struct {
		name string
		mode Mode
		want string
	}{
		{"full", Full, "SELECT 'a'"},
		{"normalized", Normalized, "SELECT $1"},
		{"off", Off, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ParseMode(tt.name)
			if err != nil || m != tt.mode || m.String() != tt.name {
				t.Fatalf("ParseMode(%q) = %v, %v", tt.name, m, err)
			}
			if got := Keep("SELECT 'a'", m, 100); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := ParseMode("some"); err == nil {
		t.Error("ParseMode accepts an unknown word")
	}
}

func TestHashIgnoresLiterals(t *testing.T) {
	a, b := Hash("SELECT 1 FROM t"), Hash("SELECT 'x' FROM t")
	if a != b {
		t.Errorf("other literal, other hash: %x and %x", a, b)
	}
	if c := Hash("SELECT 1 FROM u"); a == c {
		t.Error("other statement, same hash")
	}
}

func TestASCII(t *testing.T) {
	if got, want := ASCII("a ö 𝄞"), `a \u00F6 \U0001D11E`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// No literal survives, whatever the text; and what follows an opening quote
// outside of other constructs is never kept.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{`SELECT 'a'`, `$a$ $b$`, `E'\`, `1e`, `/*/*`, `--`, `"`, `$`, `'x'$`, `a'b'c`, `$1$a$x$a$`, `.5.`, `U&"`, "\xff'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Normalize(s)
		for rest := out; rest != ""; {
			k, n := token(rest)
			if n < 1 || n > len(rest) {
				t.Fatalf("token(%q) has length %d", rest, n)
			}
			if k == literal || k == comment {
				t.Fatalf("Normalize(%q) = %q still holds %q", s, out, rest[:n])
			}
			rest = rest[n:]
		}
		const secret = "S3CRET"
		if !strings.Contains(s, secret) {
			if got := Normalize("SELECT '" + secret + s); strings.Contains(got, secret) {
				t.Fatalf("leaked: %q", got)
			}
		}
		kept := Sanitize(s, 100)
		if len(kept) > 100 || !utf8.ValidString(kept) || strings.IndexByte(kept, 0) >= 0 {
			t.Fatalf("Sanitize(%q) = %q", s, kept)
		}
	})
}

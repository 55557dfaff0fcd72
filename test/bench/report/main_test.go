package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const figures = `c,0,fact,date,2026-01-02, a Friday
c,1,off,tps,100
c,1,off2,tps,102
c,1,ours,tps,101
c,2,off,tps,200
c,2,ours,tps,220
c,3,ours,tps,1234567
c,1,a.x,ms,3.14159
c,1,a.y,ms,25.55
c,2,a.y,ms,-0.5
`

func TestPage(t *testing.T) {
	tests := []struct{ name, template, want, missing string }{
		{"a fact with a comma", `{{fact "c" "date"}}`, "2026-01-02, a Friday", ""},
		{"median and range", `{{med "c" "ours" "tps"}}`, "220 (101 to 1 234 567)", ""},
		{"median of two", `{{med "c" "off" "tps"}}`, "150 (100 to 200)", ""},
		{"one round has no range", `{{med "c" "a.x" "ms"}}`, "3.14", ""},
		{"below zero", `{{med "c" "a.y" "ms"}}`, "12.5 (-0.50 to 25.6)", ""},
		{"ratios are of one round, to the mean of what it has", `{{ratio "c" "ours" "tps" "off" "off2"}}`, "1.050 (1.000 to 1.100)", ""},
		{"mean of ratios", `{{mean "c" "ours" "tps" "off" "off2"}}`, "1.050 ± 0.636", ""},
		{"one ratio has no interval", `{{mean "c" "off2" "tps" "off"}}`, "1.020", ""},
		{"the largest", `{{worst "ms" "c" "a."}}`, "12.5 (`y`)", ""},
		{"no figure", `{{med "c" "x" "tps"}}`, "not measured", "report: not measured: c x tps\n"},
		{"no base in any round", `{{ratio "c" "ours" "tps" "x"}}`, "not measured", "report: not measured: c ours tps by x\n"},
		{"no variant", `{{worst "ms" "c" "b."}}`, "not measured", "report: not measured: c b.* ms\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "c.csv"), figures)
			write(t, filepath.Join(dir, "page"), tt.template)
			var out, complaints strings.Builder
			if err := run(dir, filepath.Join(dir, "page"), &out, &complaints); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want || complaints.String() != tt.missing {
				t.Errorf("got %q and %q, want %q and %q", out.String(), complaints.String(), tt.want, tt.missing)
			}
		})
	}
}

func TestWhatIsNoFigure(t *testing.T) {
	for name, text := range map[string]string{"four fields": "a,1,b,2\n", "a round": "a,x,b,c,1\n", "a value": "a,1,b,c,\n"} {
		t.Run(name, func(t *testing.T) {
			if err := newResults().read(text); err == nil {
				t.Errorf("%q was taken for a figure", text)
			}
		})
	}
	if err := newResults().readAll(t.TempDir()); err == nil {
		t.Error("a directory without figures was taken")
	}
}

// The template can be executed, figures or not.
func TestTemplateOfThePage(t *testing.T) {
	text, err := os.ReadFile("../benchmarks.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := newResults().page(string(text), &out); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

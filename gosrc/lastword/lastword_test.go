package lastword

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var self = Word{SystemIdentifier: 17446744073709551615, Node: "db1:5432", CompleteTo: 800_000_000_000_001}

func TestOneLifeToTheNext(t *testing.T) {
	dir := t.TempDir()
	if w, err := Take(dir, self); err != nil || w != (Word{}) {
		t.Errorf("without a file: %+v, %v", w, err)
	}
	if err := Write(dir, self); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want it for its owner alone", info, err)
	}
	if !strings.HasPrefix(fileName, "pgsql_tmp") {
		t.Error("base backups would take the file along")
	}
	if w, err := Take(dir, self); err != nil || w != self {
		t.Errorf("got %+v, %v", w, err)
	}
	if w, err := Take(dir, self); err != nil || w != (Word{}) {
		t.Errorf("a second time: %+v, %v; it must be gone", w, err)
	}
}

func TestWordsOfOthers(t *testing.T) {
	tests := []struct {
		name    string
		text    string
		wantErr bool
	}{
		{"another system", `{"system_identifier":1,"node":"db1:5432","complete_to":5}`, false},
		{"another node", `{"system_identifier":17446744073709551615,"node":"db2:5432","complete_to":5}`, false},
		{"cut in half", `{"system_identifier":174467440`, true},
		{"not ours", strings.Repeat("x", maxSize+1), true},
		{"empty", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, fileName), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := Take(dir, self)
			if w.CompleteTo != 0 || (err != nil) != tt.wantErr {
				t.Errorf("got %+v, %v", w, err)
			}
		})
	}
}

package lastword

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"pg_lock_history/gosrc/snapshot"
)

const (
	fileName = "pgsql_tmp_pg_lock_history_last"
	// maxSize is far above what Write makes; more is not ours.
	maxSize = 4096
)

// Word is what one life of the worker leaves to the next.
type Word struct {
	SystemIdentifier uint64          `json:"system_identifier"`
	Node             string          `json:"node"`
	CompleteTo       snapshot.Micros `json:"complete_to"`
}

// Write leaves w in the data directory dir, readable by the server's user only.
func Write(dir string, w Word) error {
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("write the last word: %w", err)
	}
	path := filepath.Join(dir, fileName)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("write the last word: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the last word: %w", err)
	}
	return nil
}

// Take returns what the last life of this server left in dir, and removes it.
// Without a word, or with one of another server, CompleteTo is 0.
func Take(dir string, self Word) (Word, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Word{}, nil
	}
	if err != nil {
		return Word{}, fmt.Errorf("read the last word: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return Word{}, fmt.Errorf("read the last word: %s is not a file of ours", fileName)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Word{}, fmt.Errorf("read the last word: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return Word{}, fmt.Errorf("remove the last word: %w", err)
	}
	var w Word
	if err := json.Unmarshal(text, &w); err != nil {
		return Word{}, fmt.Errorf("read the last word (%d bytes): %w", len(text), err)
	}
	if w.SystemIdentifier != self.SystemIdentifier || w.Node != self.Node {
		return Word{}, nil
	}
	return w, nil
}

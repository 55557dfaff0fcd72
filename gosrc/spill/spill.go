package spill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// The names in the data directory. The beginning makes base backups and
// pg_rewind leave them out.
const (
	FileName    = "pgsql_tmp_pg_lock_history_spill"
	RefusedName = FileName + ".refused"
	newName     = FileName + ".new"
)

// maxRuns bounds the lives remembered while none of them could write a thing.
const maxRuns = 1000

// Identity says whose file it is.
type Identity struct {
	SystemIdentifier uint64
	Node             string
	ExtensionVersion string // for messages
}

// Entry is a batch that was not written, and from when on it holds the facts.
// Its Run is never 0.
type Entry struct {
	Batch *history.Batch
	From  snapshot.Micros
}

// Content is what one life leaves to the next.
type Content struct {
	Runs     []history.Run // oldest first, the life that wrote the file last
	Entries  []Entry
	Formerly string // read: the name under which the node wrote it, when it has another one now
}

// CompleteTo returns up to when the last life's history is complete, 0 when
// that is not known.
func (c *Content) CompleteTo() snapshot.Micros {
	if c == nil || len(c.Runs) == 0 {
		return 0
	}
	return c.Runs[len(c.Runs)-1].CompleteTo
}

// Rows returns the number of rows that the entries become.
func (c *Content) Rows() (rows int) {
	for i := range c.Entries {
		rows += c.Entries[i].Batch.Rows()
	}
	return rows
}

// Options bound the writing of a file.
type Options struct {
	EncodeBy time.Time                                      // what is not encoded by then is counted instead; zero: no bound
	MaxBytes int64                                          // of the file; 0: no bound
	Text     func(s *snapshot.Session, query string) string // what is kept of a statement of s; nil: all
}

// Written tells about a file.
type Written struct {
	Bytes int64
	Rows  int
	Lost  int // rows for which there was no time or no room, counted in a gap
}

// Refusal says why a file is not used, and what can be done.
type Refusal struct {
	Reason string
	Hint   string
}

func (r *Refusal) Error() string { return r.Reason }

const hintLost = "What it held is lost, and the time since the last heartbeat is shown as a gap."

// Write leaves c in the data directory dir.
func Write(dir string, self Identity, c Content, o Options) (Written, error) {
	if n := len(c.Runs); n > maxRuns {
		c.Runs = c.Runs[n-maxRuns:]
	}
	var w Written
	err := writeFile(dir, func(inode uint64) (parts [][]byte) {
		parts, w = encode(self, inode, &c, &o)
		return parts
	})
	if err != nil {
		return Written{}, fmt.Errorf("write the spill file (%d bytes, %d rows): %w", w.Bytes, w.Rows, err)
	}
	return w, nil
}

// writeFile writes what make returns for the inode of the file that is made.
func writeFile(dir string, make func(inode uint64) [][]byte) error {
	path := filepath.Join(dir, newName)
	// Never through a link that somebody has put there.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		for _, part := range make(inodeOf(info)) {
			if _, err = f.Write(part); err != nil {
				break
			}
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, FileName))
	}
	if err != nil {
		_ = os.Remove(path) // half a file is of no use; the error is told
	}
	return err
}

// Load reads what the last life left in dir; nil when it left nothing. A file
// of more than maxBytes is refused. What is refused is moved aside.
func Load(dir string, self Identity, maxBytes int64) (*Content, error) {
	// Left by a life that was ended while it wrote.
	_ = os.Remove(filepath.Join(dir, newName))

	raw, inode, err := readFile(filepath.Join(dir, FileName), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c *Content
	if err == nil {
		c, err = decode(raw, inode, self)
	}
	var refusal *Refusal
	switch {
	case err == nil:
		return c, nil
	case !errors.As(err, &refusal):
		return nil, fmt.Errorf("read the spill file: %w", err)
	}
	if err := SetAside(dir); err != nil {
		refusal.Hint += fmt.Sprintf(" It could not be moved aside (%v): remove it by hand.", err)
	}
	return nil, refusal
}

// SetAside moves the file to where it is not read, and can be looked at.
func SetAside(dir string) error {
	return os.Rename(filepath.Join(dir, FileName), filepath.Join(dir, RefusedName))
}

// Remove removes the file: all of it is in the history, or need not be.
func Remove(dir string) error {
	err := os.Remove(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// inodeOf returns 0 where files have no inode numbers.
func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

func readFile(path string, maxBytes int64) (raw []byte, inode uint64, err error) {
	notOurs := &Refusal{
		Reason: FileName + " is not a regular file",
		Hint:   "Whoever put it there: the worker neither follows nor opens it. " + hintLost,
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, notOurs
	}
	// It may be another one by now: nothing is followed, and nothing waits.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, 0, notOurs
	}
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err = f.Stat(); err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, notOurs
	}
	if info.Size() > maxBytes {
		return nil, 0, &Refusal{
			Reason: fmt.Sprintf("%s has %d MB, more than pg_lock_history.memory_limit", FileName, info.Size()>>20),
			Hint: fmt.Sprintf("To have it read, set pg_lock_history.memory_limit to %dMB, rename it back, and end the worker with pg_terminate_backend().",
				2*(info.Size()>>20+1)),
		}
	}
	raw = make([]byte, info.Size())
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, 0, err
	}
	return raw, inodeOf(info), nil
}

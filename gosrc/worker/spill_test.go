package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/spill"
	"pg_lock_history/gosrc/store"
)

func testConfig(dir string) config.Config {
	return config.Config{NodeName: "db1:5432", MemoryLimit: 16 << 20, QueryLength: 1024,
		Server: config.Server{SystemIdentifier: 5, DataDirectory: dir, WorkerStart: 70, ExtensionVersion: "1.0"}}
}

func facts(run, number int64) queue.Item {
	return queue.Item{From: 1, Batch: &history.Batch{Run: run, Number: number, CompleteTo: 2,
		Open: []history.Episode{{WaitID: number, Waiter: &snapshot.Session{Pid: 9, Query: "SELECT 'secret'"}}}}}
}

func TestContentOf(t *testing.T) {
	earlier := &spill.Content{Runs: []history.Run{{ID: 10, CompleteTo: 11}, {ID: 20, CompleteTo: 21}}}
	nothing := queue.Item{Batch: &history.Batch{Run: 70, Number: 3}}
	tests := []struct {
		name    string
		earlier *spill.Content
		left    store.Left
		want    string // lives and how far each is known; batches
	}{
		{"the first life", nil, store.Left{Entered: true}, "70:99 |"},
		{"all is in", earlier, store.Left{Entered: true}, "70:99 |"},
		{"nothing to tell is not kept", nil, store.Left{Items: []queue.Item{nothing, facts(70, 4)}, Entered: true}, "70:99 | 70/4"},
		{"an earlier life has not all in", earlier, store.Left{Items: []queue.Item{facts(20, 8), facts(70, 1)}, Entered: true}, "20:21 70:99 | 20/8 70/1"},
		{"no life could write", earlier, store.Left{Items: []queue.Item{facts(70, 1)}}, "10:11 20:21 70:99 | 70/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := contentOf(70, tt.earlier, tt.left, 99)
			var got strings.Builder
			for _, r := range c.Runs {
				fmt.Fprintf(&got, "%d:%d ", r.ID, r.CompleteTo)
			}
			got.WriteString("|")
			for _, e := range c.Entries {
				fmt.Fprintf(&got, " %d/%d", e.Batch.Run, e.Batch.Number)
			}
			if got.String() != tt.want || c.CompleteTo() != 99 {
				t.Errorf("got %q, complete to %d; want %q", got.String(), c.CompleteTo(), tt.want)
			}
		})
	}
	if len(earlier.Runs) != 2 {
		t.Error("what was read has been changed")
	}
}

// The disk gets no more of a statement than the tables would.
func TestKeptText(t *testing.T) {
	s := &snapshot.Session{Query: "SELECT 'secret' FROM t"}
	vacuum := &snapshot.Session{Query: "autovacuum: VACUUM t (to prevent wraparound)", Wraparound: true}
	tests := []struct {
		mode querytext.Mode
		want string
	}{{querytext.Normalized, "SELECT $1 FROM t"}, {querytext.Off, ""}}
	for _, tt := range tests {
		t.Run(tt.mode.String(), func(t *testing.T) {
			kept := keptText(config.Config{QueryText: tt.mode, QueryLength: 1024})
			if got := kept(s, s.Query); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if again := kept(&snapshot.Session{}, tt.want); again != tt.want {
				t.Errorf("what was kept is kept as %q the next time", again)
			}
			if kept(vacuum, vacuum.Query) != vacuum.Query {
				t.Error("that it prevents wraparound is not kept")
			}
		})
	}
	if keptText(config.Config{QueryText: querytext.Full}) != nil {
		t.Error("full statements need no change")
	}
}

func newFile(dir string) (*spillFile, *report.Log) {
	log := report.New(func() {})
	return &spillFile{dir: dir, log: log}, log
}

func soon() time.Time { return time.Now().Add(10 * time.Second) }

func TestFileFromOneLifeToTheNext(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	path := filepath.Join(dir, spill.FileName)
	f, _ := newFile(dir)
	if got := f.load(c); got != nil {
		t.Fatalf("read %+v from nothing", got)
	}
	if m := f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 1)}, Entered: true}, 99, soon()); m != nil {
		t.Fatal(m)
	}
	f.remove() // too late: the file is that of the next life now
	next, log := newFile(dir)
	got := next.load(c)
	if got.CompleteTo() != 99 || got.Rows() != 1 {
		t.Fatalf("read %+v", got)
	}
	if told := log.Take(); len(told) != 1 || told[0].Level != report.Info {
		t.Errorf("told %+v", told)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("%v: it is needed until all of it is in", err)
	}
	next.remove()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}

	// Without tables there is no history that it could belong to.
	_ = f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 1)}}, 99, soon())
	if m := f.leave(c, nil, store.Left{NoTables: true}, 99, soon()); m != nil {
		t.Error(m)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file without a history: %v", err)
	}
}

func TestWhatIsTold(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	items := store.Left{Items: []queue.Item{facts(70, 1), facts(70, 2)}}

	f, _ := newFile(filepath.Join(dir, "none"))
	if m := f.leave(c, nil, items, 99, soon()); m == nil || !strings.Contains(m.Text, "facts are lost") || m.Hint == "" {
		t.Errorf("no directory: told %+v", m)
	}
	f, _ = newFile(dir)
	small := c
	small.MemoryLimit = 2 // no room
	if m := f.leave(small, nil, items, 99, soon()); m == nil || !strings.Contains(m.Text, "0 rows, 2 had no time or no room") {
		t.Errorf("no room: told %+v", m)
	}
	if err := spill.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if m := f.leave(c, nil, items, 99, time.Now().Add(-time.Second)); m == nil {
		t.Error("no time, and nothing told")
	}
	untilWritten(t, f, dir)
	if err := os.WriteFile(filepath.Join(dir, spill.FileName), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, log := newFile(dir)
	if got := f.load(c); got != nil {
		t.Errorf("read %+v", got)
	}
	if told := log.Take(); len(told) != 1 || told[0].Level != report.Warning || !strings.Contains(told[0].Text, "damaged") || told[0].Hint == "" {
		t.Errorf("damaged: told %+v", told)
	}
}

// A disk that stalls does not hold up the stop.
func TestStalledDisk(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	f, _ := newFile(dir)
	f.mu.Lock() // as a removal that does not come back
	began := time.Now()
	m := f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 1)}}, 99, began.Add(50*time.Millisecond))
	if took := time.Since(began); took > 5*time.Second || m == nil || !strings.Contains(m.Text, "in time") {
		t.Errorf("took %s, told %+v", took, m)
	}
	f.mu.Unlock()
	untilWritten(t, f, dir)
}

// untilWritten waits for the end of a write that leave did not wait for.
func untilWritten(t *testing.T, f *spillFile, dir string) {
	t.Helper()
	for deadline := soon(); ; time.Sleep(time.Millisecond) {
		f.mu.Lock() // held for as long as a write goes on
		_, err := os.Stat(filepath.Join(dir, spill.FileName))
		f.mu.Unlock()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A file that cannot be read now is not thrown away.
func TestFileThatCannotBeReadStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in the place of the directory: ENOTDIR
		t.Fatal(err)
	}
	f := &spillFile{dir: dir, log: report.New(func() {})}
	if c := f.load(testConfig(dir)); c != nil || !f.unread {
		t.Fatalf("content %v, unread %t", c, f.unread)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, spill.FileName)
	if err := os.WriteFile(file, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.remove()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file that could not be read is gone: %v", err)
	}
}

func TestUnreadFileIsMovedAside(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	f, _ := newFile(dir)
	_ = f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 1)}}, 98, soon())
	late, _ := newFile(dir)
	late.unread = true
	late.remove()
	if m := late.leave(c, nil, store.Left{Entered: true}, 99, soon()); m != nil {
		t.Fatal(m)
	}
	if _, err := os.Stat(filepath.Join(dir, spill.RefusedName)); err != nil {
		t.Errorf("the unread file: %v", err)
	}
	next, _ := newFile(dir)
	if got := next.load(c); got.CompleteTo() != 99 {
		t.Errorf("read %+v", got)
	}
}

// A file that could not be read, for a reason that passes, is not removed when
// all else is written, and not overwritten.
func TestFileThatFailsToReadStays(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	path := filepath.Join(dir, spill.FileName)
	f, _ := newFile(dir)
	_ = f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 1)}}, 98, soon())
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0 // no file can be opened, for whatever user
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	next, log := newFile(dir)
	got := next.load(c)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if got != nil {
		t.Fatalf("read %+v", got)
	}
	told := log.Take()
	if len(told) != 1 || told[0].Level != report.Warning || !strings.Contains(told[0].Text, syscall.EMFILE.Error()) ||
		!strings.Contains(told[0].Detail+told[0].Hint, spill.RefusedName) || strings.Contains(told[0].Hint, "gap") {
		t.Errorf("told %+v", told)
	}
	next.remove()
	if raw, err := os.ReadFile(path); err != nil || string(raw) != string(want) {
		t.Errorf("the file has gone: %v", err)
	}
	if m := next.leave(c, nil, store.Left{Entered: true}, 99, soon()); m != nil {
		t.Error(m)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, spill.RefusedName)); err != nil || string(raw) != string(want) {
		t.Errorf("it was not moved aside: %v", err)
	}

	// What cannot be moved aside is not overwritten either.
	f, _ = newFile(dir)
	f.unread = true
	if err := errors.Join(os.Remove(filepath.Join(dir, spill.RefusedName)), os.Mkdir(filepath.Join(dir, spill.RefusedName), 0o700)); err != nil {
		t.Fatal(err)
	}
	if want, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if m := f.leave(c, nil, store.Left{Items: []queue.Item{facts(70, 2)}}, 99, soon()); m == nil || !strings.Contains(m.Text, "stands in the way") {
		t.Errorf("told %+v", m)
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != string(want) {
		t.Errorf("it was overwritten: %v", err)
	}
}

// What was left stands first in the queue; while the server stops nothing in
// it is dropped for its age, whatever else is set.
func TestSinkQueue(t *testing.T) {
	dir := t.TempDir()
	c := testConfig(dir)
	earlier := &spill.Content{Runs: []history.Run{{ID: 20}}, Entries: []spill.Entry{{Batch: facts(20, 8).Batch, From: 1}}}
	s := newSink(c, report.New(func() {}), func() {}, earlier, nil)
	push := func(number int64, at time.Duration) {
		b := facts(0, number).Batch
		b.CompleteTo = snapshot.Micros(800_000_000_000_000).Add(at)
		s.Push(b)
	}
	push(1, 0)
	push(2, maxAge+time.Second)
	if s.queue.Len() != 2 || s.queue.Restored() != 1 {
		t.Errorf("%d queued, %d of them restored; want the one of before, and the one that is young enough", s.queue.Len(), s.queue.Restored())
	}
	s.Close()
	s.Configure(c)
	push(3, 5*maxAge)
	if s.queue.Len() != 3 {
		t.Errorf("%d queued: dropped for age while the server stops", s.queue.Len())
	}
}

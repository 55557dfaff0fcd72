package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/spill"
	"pg_lock_history/gosrc/store"
)

// loadTime bounds how long the sampling may be put off by reading the spill
// file. 32 MB take a tenth of it when the disk is well.
const loadTime = 2 * time.Second

// encodeShare is the part of the time for the file that goes into making it; the
// rest is for the disk.
const encodeShare = 0.6

// spillFile is the file between two lives of the worker. Its fields are
// written before the store runs. The disk may stall, so the main thread leaves
// each call to it to a goroutine, and waits for that only so long.
type spillFile struct {
	dir    string
	log    *report.Log
	unread bool // could not be read: it stays, and is moved aside before another is written

	// mu makes sure that remove, on the store's goroutine, does not meet the
	// file that the end of this life writes.
	mu      sync.Mutex
	leaving bool
}

func self(c config.Config) spill.Identity {
	return spill.Identity{SystemIdentifier: c.Server.SystemIdentifier, Node: c.NodeName, ExtensionVersion: c.Server.ExtensionVersion}
}

// load reads what earlier lives have left; nil for nothing. The whole file may
// take as much memory as the worker: what does not fit into the queue, which
// is half of that, is dropped there, oldest first, and counted.
func (f *spillFile) load(c config.Config) *spill.Content {
	type result struct {
		content *spill.Content
		err     error
	}
	read := make(chan result, 1)
	go func() { // ends with the read; nobody waits for a late one
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("read the spill file: %v", p)
			}
			read <- r
		}()
		r.content, r.err = spill.Load(f.dir, self(c), c.MemoryLimit)
	}()
	select {
	case r := <-read:
		f.tell(r.content, r.err)
		return r.content
	case <-time.After(loadTime):
		f.stays(fmt.Sprintf("the spill file could not be read within %s, sampling begins without it", loadTime))
		return nil
	}
}

func (f *spillFile) tell(c *spill.Content, err error) {
	var refusal *spill.Refusal
	switch {
	case errors.As(err, &refusal):
		f.log.Add(report.Message{Level: report.Warning, Text: "facts of the life before are not taken over: " + refusal.Reason,
			Detail: "The file was moved to " + spill.RefusedName + " in the data directory.", Hint: refusal.Hint})
	case err != nil:
		f.stays("facts of the life before are not taken over: " + err.Error())
	case c != nil && c.Rows() > 0:
		m := report.Message{Level: report.Info,
			Text: fmt.Sprintf("%d rows that could not be written before the last stop are written now", c.Rows())}
		if c.Formerly != "" {
			m.Detail = fmt.Sprintf("The name of this node was %q then; they are written under the name it has now.", c.Formerly)
		}
		f.log.Add(m)
	}
}

// stays says that the file could not be read, which may pass, and what becomes
// of it. A crash leaves it in its place for the next start.
func (f *spillFile) stays(text string) {
	f.unread = true
	f.log.Add(report.Message{Level: report.Warning, Text: text,
		Detail: fmt.Sprintf("Nothing is lost yet: it stays in the data directory, and is moved aside to %s when the worker stops.", spill.RefusedName),
		Hint:   fmt.Sprintf("See to the data directory. To have it read, rename it to %s while the server is stopped, and start it.", spill.FileName)})
}

// remove is called on the store's goroutine when nothing of the file is left
// to write.
func (f *spillFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaving || f.unread {
		return
	}
	if err := spill.Remove(f.dir); err != nil {
		f.log.Add(report.Message{Level: report.Warning, Text: "could not remove the spill file: " + err.Error(),
			Hint: "It will be read again, which does no harm. See to the data directory."})
	}
}

// leave writes the file for the next life, until the deadline. It returns what
// there is to say when that did not go well.
func (f *spillFile) leave(c config.Config, earlier *spill.Content, left store.Left, complete snapshot.Micros, deadline time.Time) *report.Message {
	content := contentOf(int64(c.Server.WorkerStart), earlier, left, complete)
	o := spill.Options{
		EncodeBy: time.Now().Add(time.Duration(float64(time.Until(deadline)) * encodeShare)),
		MaxBytes: queueBytes(c),
		Text:     keptText(c),
	}
	written := make(chan error, 1)
	go func() { // ends with the write, or with the process
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("write the spill file: %v", p)
			}
			written <- err
		}()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leaving = true
		if f.unread {
			if err = spill.SetAside(f.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("the spill file that could not be read stands in the way: %w", err)
				return
			}
		}
		if left.NoTables {
			err = spill.Remove(f.dir)
			return
		}
		var w spill.Written
		if w, err = spill.Write(f.dir, self(c), content, o); err == nil && w.Lost > 0 {
			err = fmt.Errorf("the spill file took %d rows, %d had no time or no room", w.Rows, w.Lost)
		}
	}()
	var err error
	select {
	case err = <-written:
	case <-time.After(time.Until(deadline)):
		err = fmt.Errorf("the disk did not take the spill file of %d rows in time", content.Rows())
	}
	if err == nil {
		return nil
	}
	return &report.Message{Level: report.Warning, Text: "facts are lost at this stop: " + err.Error(),
		Hint: "See to the disk of the data directory; a shorter pg_lock_history.flush_period leaves less to write at the end."}
}

// contentOf puts together what this life leaves. Earlier lives stay in it as
// long as the tables may not know them, or have not all of them.
func contentOf(run int64, earlier *spill.Content, left store.Left, complete snapshot.Micros) spill.Content {
	var c spill.Content
	owes := make(map[int64]bool)
	for _, item := range left.Items {
		if item.Batch.Empty() {
			continue // CompleteTo says it all
		}
		c.Entries = append(c.Entries, spill.Entry{Batch: item.Batch, From: item.From})
		owes[item.Batch.Run] = true
	}
	if earlier != nil {
		c.Runs = slices.DeleteFunc(slices.Clone(earlier.Runs), func(r history.Run) bool {
			return left.Entered && !owes[r.ID]
		})
	}
	c.Runs = append(c.Runs, history.Run{ID: run, CompleteTo: complete})
	return c
}

// keptText says what of a statement may get to the disk: no more than the
// tables would hold. Nil for all of it.
func keptText(c config.Config) func(*snapshot.Session, string) string {
	if c.QueryText == querytext.Full {
		return nil
	}
	return func(s *snapshot.Session, query string) string {
		if s.Wraparound { // says so nowhere else, and is the server's own
			return query
		}
		return querytext.Keep(query, c.QueryText, c.QueryLength)
	}
}

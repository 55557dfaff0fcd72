// Command day fills the ring of a server with a day, or so, of made-up history
// that ends now, through the store that the worker uses: the same batches, the
// same COPY, the same ring. Five minutes before the end is a storm: 1 000
// sessions behind one ALTER TABLE for 90 s.
//
//	day -host /tmp/s -port 5501 -database postgres -node bench -hours 24 -waits 200000
//
// The server's own worker must not write to that database at the same time. It
// prints how many seconds it took, and rows a second.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/historytest"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/queue"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/store"
)

const (
	storm      = 1000
	stormLasts = 90 * time.Second
	stormAgo   = 5 * time.Minute

	queueBytes = 64 << 20
	patience   = 10 * time.Minute
)

type options struct {
	host, database, node, table string
	port, hours, waits          int
	seed                        uint64
}

func main() {
	var o options
	flag.StringVar(&o.host, "host", "", "directory of the server's socket")
	flag.IntVar(&o.port, "port", 5432, "its number")
	flag.StringVar(&o.database, "database", "postgres", "where the extension is")
	flag.StringVar(&o.node, "node", "bench", "name of the server in the history")
	flag.StringVar(&o.table, "table", "public.orders", "an existing table, which the waits are for")
	flag.IntVar(&o.hours, "hours", 24, "how much history")
	flag.IntVar(&o.waits, "waits", 200_000, "waits in it")
	flag.Uint64Var(&o.seed, "seed", 42, "of what is random")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "day:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable", o.host, o.port, o.database))
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	end := snapshot.FromTime(time.Now()).Add(-time.Second)
	end -= end % snapshot.Micros(time.Minute/time.Microsecond)
	began := end.Add(-time.Duration(o.hours) * time.Hour)

	c := config.Config{
		Enabled: true, TrackLocks: true, TrackLoad: true, TrackLWLocks: true, TrackPages: true, Database: o.database, NodeName: o.node,
		FlushPeriod: time.Second, MinDuration: 100 * time.Millisecond, QueryText: querytext.Full, QueryLength: 1024,
		// At the end seven of the eight segments are full, or nearly so, and the last is the one emptied ahead.
		Retention: time.Duration(o.hours+1) * time.Hour, RollupRetention: 90 * 24 * time.Hour, MaxSize: 4 << 30, MemoryLimit: 2 * queueBytes,
		Server: config.Server{Port: o.port, SocketDirectories: []string{o.host}, WorkerStart: began},
	}
	var database, relation uint32
	var started time.Time
	if err := db.QueryRow(ctx, `SELECT pg_postmaster_start_time(), s.system_identifier, current_setting('server_version_num')::int,
		(SELECT rolname FROM pg_roles WHERE oid = 10), e.extversion, d.oid, $1::regclass::oid
		FROM pg_control_system() AS s, pg_extension AS e, pg_database AS d
		WHERE e.extname = 'pg_lock_history' AND d.datname = current_database()`, o.table).
		Scan(&started, &c.Server.SystemIdentifier, &c.Server.VersionNum, &c.Server.BootstrapRole, &c.Server.ExtensionVersion, &database, &relation); err != nil {
		return err
	}
	c.Server.PostmasterStart = snapshot.FromTime(started)

	q := queue.New(queue.Limit{Bytes: queueBytes})
	log := report.New(func() {})
	s := store.New(store.Options{Config: c, Queue: q, Log: log, Wake: func() {}, Flushed: func(uint64) {}})
	ended := make(chan struct{})
	go func() { // ends with cancel
		defer close(ended)
		s.Run(ctx)
	}()

	clock := time.Now()
	if err := feed(o, q, s, log, began, end, database, relation); err != nil {
		return err
	}
	took := time.Since(clock)
	rows := s.Status().RowsWritten
	fmt.Printf("seconds %.1f\nrows_per_s %.0f\n", took.Seconds(), float64(rows)/took.Seconds())
	// What a day has behind it: closed segments are added up by minute, and the planner knows the tables.
	if err := until("segments are added up by minute", func() (bool, error) {
		var all bool
		err := db.QueryRow(ctx, `SELECT coalesce(bool_and(is_rolled), true) FROM lock_history.ring WHERE closed_at IS NOT NULL`).Scan(&all)
		return all, err
	}); err != nil {
		return err
	}
	cancel()
	<-ended
	return nil
}

// feed hands over all of it and returns when it is written.
func feed(o options, q *queue.Queue, s *store.Store, log *report.Log, began, end snapshot.Micros, database, relation uint32) error {
	const minute = snapshot.Micros(time.Minute / time.Microsecond)
	day := historytest.NewDay(o.seed, 5000, database, relation)
	minutes := int((end - began) / minute)
	incidents := o.waits / historytest.Waiters
	var number int64
	var late []history.Episode // of the storm, to be closed in a later minute
	for m := range minutes {
		at := began + snapshot.Micros(m)*minute
		b := day.Minute(at, incidents*(m+1)/minutes-incidents*m/minutes)
		switch {
		case at == end.Add(-stormAgo):
			late = day.Incident(at, storm+1, stormLasts)
			b.Open, b.Waiting = historytest.Opened(late), true
		case len(late) > 0:
			b.Closed = append(b.Closed, late...)
			late = nil
		}
		number++
		b.Number, b.OldestOpen = number, at
		q.Push(b)
		if err := until("there is room in the queue", func() (bool, error) { return q.Bytes() < queueBytes/2, nil }); err != nil {
			return fmt.Errorf("%w; %+v, %v", err, s.Status(), log.Take())
		}
	}
	if err := until("all of it is written", func() (bool, error) { return s.Status().LastFlush >= end, nil }); err != nil {
		return fmt.Errorf("%w; %+v, %v", err, s.Status(), log.Take())
	}
	if st := s.Status(); st.RowsDropped != 0 || st.State != store.StateRecording {
		return fmt.Errorf("not all of it was written: %+v, %v", st, log.Take())
	}
	return nil
}

func until(what string, fact func() (bool, error)) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok, err := fact(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited in vain until %s", what)
}

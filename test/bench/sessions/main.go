// Command sessions opens connections and keeps them: idle ones, waiters on one
// lock, and some in a transaction that has written. It prints "ready" when all are in place and leaves when its
// standard input ends.
//
//	sessions -dsn '...' -idle 100 -waiting 100 -open 100
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	dsn := flag.String("dsn", "", "where to connect")
	idle := flag.Int("idle", 0, "idle connections")
	waiting := flag.Int("waiting", 0, "sessions that wait for one lock")
	open := flag.Int("open", 0, "sessions that are idle in a transaction that has written")
	flag.Parse()
	if err := run(*dsn, *idle, *waiting, *open); err != nil {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func run(dsn string, idle, waiting, open int) error {
	ctx := context.Background()
	connect := func() (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }
	for range idle {
		if _, err := connect(); err != nil {
			return err
		}
	}
	for range open {
		conn, err := connect()
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "BEGIN; SELECT pg_current_xact_id()"); err != nil {
			return err
		}
	}
	if waiting > 0 {
		holder, err := connect()
		if err != nil {
			return err
		}
		if _, err := holder.Exec(ctx, "SELECT pg_advisory_lock(4711)"); err != nil {
			return err
		}
		for range waiting {
			conn, err := connect()
			if err != nil {
				return err
			}
			go func() { // ends with the process
				_, _ = conn.Exec(ctx, "SELECT pg_advisory_lock(4711)")
			}()
		}
		for n := 0; n < waiting; time.Sleep(10 * time.Millisecond) {
			if err := holder.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n); err != nil {
				return err
			}
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

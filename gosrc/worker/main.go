package main

/*
#cgo CFLAGS: -I${SRCDIR}/../../extension
#include "probe.h"
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/probe"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/sampler"
	"pg_lock_history/gosrc/snapshot"
	"pg_lock_history/gosrc/spill"
)

const (
	// maxStack ends a runaway recursion early: copying a stack of hundreds of
	// megabytes keeps the main thread from a shutdown for seconds.
	maxStack = 16 << 20
	// maxProcs leaves the sessions their cores: one for the main thread, one
	// for the store.
	maxProcs = 2
	// gcPercent is below Go's default of 100: the heap is small, and every
	// page of it is taken from the server's cache.
	gcPercent = 50

	// How the end of the worker is divided, counted from when it was asked to
	// stop; the watchdog of C ends it after 400 ms. The sampler watches how the
	// last waits end until watchOnStop, if there are any. The store may write to
	// the tables until writeOnStop, which a fast shutdown cuts short: it ends the
	// store's session as well. Then the spill file has until spillOnStop, and the
	// goodbye to the server until stopTime.
	watchOnStop = 50 * time.Millisecond
	writeOnStop = 130 * time.Millisecond
	spillOnStop = 300 * time.Millisecond
	stopTime    = 320 * time.Millisecond
)

// main is never called: a c-shared library must have one.
func main() {}

//export plh_interface_version
func plh_interface_version() C.uint32_t { return probe.Interface }

// plh_run returns 0 for an orderly end and 1 when the worker has to be started
// again because something went wrong.
//
//export plh_run
func plh_run(probes *C.PlhProbes) (code C.int32_t) {
	// The environment of a server process is not visible to Go; limits are set here.
	debug.SetTraceback("crash") // a death raises SIGABRT, which C turns into exit code 1
	debug.SetMaxStack(maxStack)
	debug.SetGCPercent(gcPercent)
	runtime.GOMAXPROCS(maxProcs)

	table, err := probe.New(unsafe.Pointer(probes))
	if err != nil {
		return 1 // the table cannot be trusted, not even to log
	}
	defer func() {
		if p := recover(); p != nil {
			_ = table.Log(report.Message{
				Level:  report.Warning,
				Text:   fmt.Sprintf("unexpected failure, the worker will be started again: %v", p),
				Detail: shortStack(),
				Hint:   "Please report this with the server log.",
			})
			code = 1
		}
	}()
	if err := run(table); err != nil {
		_ = table.Log(report.Message{Level: report.Warning, Text: "the worker will be started again: " + err.Error()})
		return 1
	}
	return 0
}

// shortStack is the part of the stack that tells where a panic came from.
func shortStack() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	return strings.Join(lines[:min(len(lines), 24)], "\n")
}

func run(table *probe.Table) error {
	raw, err := table.Settings()
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	cfg, err := config.Parse(raw)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	conflicts, err := table.Conflicts()
	if err != nil {
		return fmt.Errorf("read the conflict table: %w", err)
	}
	limitMemory(cfg)

	wake := table.Waker()
	log := report.New(wake)
	file := &spillFile{dir: cfg.Server.DataDirectory, log: log}
	earlier := file.load(cfg)
	sink := newSink(cfg, log, wake, earlier, file.remove)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				log.Add(report.Message{Level: report.Warning, Key: "store panic", Text: fmt.Sprintf("the store has failed, nothing is written any more: %v", p), Detail: shortStack(),
					Hint: "Restart the worker with pg_terminate_backend(); please report this with the server log."})
			}
		}()
		sink.store.Run(ctx)
	}()

	s := sampler.New(sampler.Options{
		Probes:       table,
		Sink:         sink,
		Log:          log,
		Conflicts:    conflicts,
		Config:       cfg,
		MaxProcesses: table.MaxProcesses(),
		LiveRoom:     table.LiveRoom(),
		Names:        sink.store.Names(),
		WatchOnStop:  watchOnStop,
		Rest:         giveBack,
		Fault:        fault(),
	})
	err = s.Run()
	if m := stop(sink, file, earlier, s.Complete(), s.StopSeen(), cancel, done); m != nil {
		_ = table.Log(*m) // the sampler does it no more
	}
	return err
}

// giveBack returns memory that a storm took to the system; on a goroutine of
// its own, which ends with it, since a collection takes milliseconds.
func giveBack() {
	go func() {
		defer func() { _ = recover() }() // what is not given back stays ours
		debug.FreeOSMemory()
	}()
}

// stop lets the store write what it can, leaves the rest to the next life and
// ends the store. It returns what there is to say about it.
func stop(sink *sink, file *spillFile, earlier *spill.Content, complete snapshot.Micros, began time.Time, cancel context.CancelFunc, done <-chan struct{}) *report.Message {
	if began.IsZero() {
		began = time.Now() // nobody asked: the sampling has failed
	}
	left := sink.store.Leave(time.Until(began.Add(writeOnStop)))
	cancel()
	message := file.leave(sink.cfg, earlier, left, complete, began.Add(spillOnStop))
	select {
	case <-done:
	case <-time.After(time.Until(began.Add(stopTime))):
	}
	return message
}

// Command worker is the Go library of pg_lock_history, built with
// -buildmode=c-shared and loaded by the background worker (extension/goload.c).
//
// It exports two functions. plh_interface_version is asked first;
// plh_run is called once, on the worker's main thread, and returns when the
// worker has to stop. It wires the parts together and owns every goroutine:
//
//	main thread   sampler.Run: probes, analysis, log, status
//	store         store.Run: the writer's session and the names' (its own two goroutines)
//
// Panics are contained at each of these roots; a panic of the main thread is
// logged and ends this life of the worker with an error, the postmaster starts
// the next one. What recover cannot reach is contained by C.
package main

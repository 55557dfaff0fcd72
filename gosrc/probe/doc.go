// Package probe calls the probe functions that the shim hands over, and is
// with package worker the only place where C is spoken. It ties the layout of
// extension/probe.h to package snapshot: where sizes or offsets differ it does
// not compile.
//
// A Table may be used on the worker's main thread only. Buffers belong to the
// caller and hold no pointers, so they may be handed to C while it runs.
package probe

// Package snapshot holds what the probes copied out of shared memory, in the
// layout in which C wrote it (extension/probe.h), and the session details read
// beside it. It knows no analysis and no storage; every other package builds
// on it. A snapshot is never changed after it was taken.
//
// Everything here was written by other processes while they ran: ranges may be
// cut, a process may be gone, a wait start may not be published yet. Package
// waitgraph is where that is made sense of.
package snapshot

//go:build !faultinject

package main

// fault returns nil: a release acts out no faults.
func fault() func() { return nil }

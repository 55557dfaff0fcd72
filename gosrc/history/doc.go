// Package history holds the facts that are kept: episodes with their blockers,
// merged short waits, load, anomalies, gaps, the observer's own health, and the batch in which
// they travel from analysis to the store. Values only, no behaviour beyond
// naming; analysis makes them, the store writes them.
package history

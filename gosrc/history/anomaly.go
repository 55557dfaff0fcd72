package history

import "pg_lock_history/gosrc/snapshot"

// AnomalyEnd says why an anomaly is over.
type AnomalyEnd string

// The words are stored.
const (
	EndNormal      AnomalyEnd = "normal"       // the load is back in its band
	EndNewLevel    AnomalyEnd = "new level"    // it lasted so long that it is the usual load now
	EndUnknown     AnomalyEnd = "unknown"      // nobody was looking
	EndSwitchedOff AnomalyEnd = "switched off" // pg_lock_history.anomaly_band was set to 0
)

// Anomaly is a time in which more sessions waited than is usual.
type Anomaly struct {
	WaitEventType string // "": all sessions that were not on CPU
	StartedAt     snapshot.Micros
	DetectedAt    snapshot.Micros
	EndedAt       snapshot.Micros // 0 while it lasts
	End           AnomalyEnd
	Observed      float64 // most sessions, as a mean over 10 s
	Expected      float64 // sessions that were usual when it started
	Band          float64 // up to so many would have been usual
	LeadingEvent  string  // type:event with most time during it; "" not known
	RootPid       int32   // root blocker, where locks lead; 0 none
	Told          bool    // in the server log and to listeners; else another open one says the same
	Notify        bool    // its start or its end is news for listeners
}

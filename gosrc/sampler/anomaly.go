package sampler

import (
	"fmt"
	"strings"
	"time"

	"pg_lock_history/gosrc/anomaly"
	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// saveEvery is how often what the detector has learnt goes into the history,
	// together with something else. A crash loses so much of it; it takes 6 kB.
	saveEvery = 5 * time.Minute
	// refreshEvery is how often the row of an open anomaly is written again when
	// it has got worse.
	refreshEvery = time.Minute

	// unseenAfter is how long an open anomaly is alive without a second.
	unseenAfter = time.Minute

	keyDetector = "anomaly state"
)

// anomalyWatch is the detector of unusual load, and what it has to hand over.
type anomalyWatch struct {
	detector  *anomaly.Detector
	restored  bool              // what the life before knew has come, if there was anything
	news      []history.Anomaly // since the last flush
	save      bool              // the state belongs with them
	seen      bool              // a second since the state was last saved
	lastAt    snapshot.Micros   // begin of the last second
	savedAt   snapshot.Micros
	refreshed snapshot.Micros
	owed      bool              // the tables take the open ones for lost
	shown     []history.Anomaly // the open ones as last written
	open      []history.Anomaly // for refresh to fill
}

func newAnomalyWatch(c config.Config) anomalyWatch {
	return anomalyWatch{detector: anomaly.New(detectorConfig(c))}
}

func detectorConfig(c config.Config) anomaly.Config { return anomaly.Config{Band: c.AnomalyBand} }

// observe takes in the load of one second that was sampled; root is the root
// blocker of most waits for locks in it, 0 for none.
func (s *Sampler) observe(sec *history.Second, root int32) {
	a := &s.anomalies
	if !a.restored {
		if state, known := s.o.Sink.DetectorState(); known {
			s.restoreDetector(state)
		}
	}
	a.seen, a.lastAt = true, sec.At
	events := a.detector.Second(anomaly.Observation{Second: sec, Root: root})
	for i := range events {
		x := events[i].Anomaly
		x.Notify = x.Told
		a.news = append(a.news, x)
		a.save = true
		if x.Told {
			s.o.Log.Add(anomalyMessage(&x))
		}
	}
}

// restoreDetector takes over what the life before knew. What it left open goes
// on, and is written with the next flush, as of this life: nothing is shown yet.
func (s *Sampler) restoreDetector(state []byte) {
	a := &s.anomalies
	a.restored = true
	if state == nil {
		return
	}
	if err := a.detector.Restore(state); err != nil {
		s.errors++
		s.o.Log.Add(report.Message{Level: report.Warning, Key: keyDetector, Text: "what is usual load is learnt anew: " + err.Error()})
	}
}

// isAlive reports whether an anomaly is open and looked at. When the load is
// not sampled any more, nobody knows how it goes on.
func (a *anomalyWatch) isAlive(now snapshot.Micros) bool {
	return a.detector.IsOpen() && now.Sub(a.lastAt) < unseenAfter
}

// drainAnomalies returns what has become known of anomalies since the last
// flush, and again what is open where the tables need it.
func (s *Sampler) drainAnomalies(at snapshot.Micros, rewrite bool) []history.Anomaly {
	a := &s.anomalies
	out := a.news
	a.news = nil
	if len(out) == 0 && !a.detector.IsOpen() {
		a.shown = a.shown[:0]
		return nil
	}
	a.open = a.detector.Open(a.open[:0])
	switch due := at.Sub(a.refreshed) >= refreshEvery || at < a.refreshed; {
	case rewrite, a.owed, due && worse(a.shown, a.open):
		a.owed = false
	default:
		return out
	}
	// Which of them just started is in out already, as news: that row tells listeners.
	for _, x := range a.open {
		if !has(out, &x) {
			out = append(out, x)
		}
	}
	a.refreshed = at
	a.save = true // with the rows: another life must not show less than this one did
	a.shown = append(a.shown[:0], a.open...)
	return out
}

// worse reports whether what is open differs from what was written.
func worse(shown, open []history.Anomaly) bool {
	if len(shown) != len(open) {
		return true
	}
	for i := range open {
		if shown[i] != open[i] {
			return true
		}
	}
	return false
}

// has reports whether list has the row of x as it is now.
func has(list []history.Anomaly, x *history.Anomaly) bool {
	for i := range list {
		if y := &list[i]; y.WaitEventType == x.WaitEventType && y.StartedAt == x.StartedAt && y.EndedAt == 0 {
			return true
		}
	}
	return false
}

// detectorState returns what the next life has to know, nil when there is no
// need to write it: with news in any case, with other rows every few minutes,
// and at the end.
func (s *Sampler) detectorState(at snapshot.Micros, busy, final bool) []byte {
	a := &s.anomalies
	if !a.seen || !a.save && !final && !(busy && (at.Sub(a.savedAt) >= saveEvery || at < a.savedAt)) {
		return nil
	}
	if !a.restored && !a.save {
		return nil // the tables may know more, and have not been read yet
	}
	a.save, a.seen, a.savedAt = false, false, at
	return a.detector.State()
}

// anomalyMessage is the line for the server log.
func anomalyMessage(a *history.Anomaly) report.Message {
	waiting := "not on CPU"
	if a.WaitEventType != "" {
		waiting = "waiting for " + a.WaitEventType
	}
	detail := []string{fmt.Sprintf("Usual were %.1f, up to %.1f.", a.Expected, a.Band)}
	if a.LeadingEvent != "" {
		detail = append(detail, "Most of the time went into "+a.LeadingEvent+".")
	}
	if a.RootPid != 0 {
		detail = append(detail, fmt.Sprintf("Root blocker: process %d.", a.RootPid))
	}
	if a.EndedAt == 0 {
		return report.Message{Level: report.Warning,
			Text:   fmt.Sprintf("unusual load: %.1f sessions %s, since %s", a.Observed, waiting, clock(a.StartedAt)),
			Detail: strings.Join(detail, " "), Hint: whereToLook(a)}
	}
	text := fmt.Sprintf("unusual load is over: %s, up to %.1f sessions, from %s to %s", waiting, a.Observed, clock(a.StartedAt), clock(a.EndedAt))
	switch a.End {
	case history.EndNewLevel:
		text = fmt.Sprintf("unusual load is taken for usual from now on: %s, up to %.1f sessions, since %s", waiting, a.Observed, clock(a.StartedAt))
	case history.EndUnknown:
		text += "; what came then nobody has seen"
	case history.EndSwitchedOff:
		text = fmt.Sprintf("unusual load is not looked for any more: %s, up to %.1f sessions, since %s", waiting, a.Observed, clock(a.StartedAt))
	}
	return report.Message{Level: report.Info, Text: text, Detail: strings.Join(detail, " "), Hint: whereToLook(a)}
}

// whereToLook is the query that tells more.
func whereToLook(a *history.Anomaly) string {
	switch {
	case strings.HasPrefix(a.LeadingEvent, "Lock:") && a.EndedAt == 0:
		return "Who blocks whom: SELECT * FROM lock_history.blocking_now;"
	case strings.HasPrefix(a.LeadingEvent, "Lock:"):
		return fmt.Sprintf("Who blocked whom: SELECT * FROM lock_history.worst_moments('%s', '%s');", clock(a.StartedAt), clock(a.EndedAt))
	case a.EndedAt == 0:
		return fmt.Sprintf("What it is made of: SELECT * FROM lock_history.load_by('%s', now());", clock(a.StartedAt))
	default:
		return fmt.Sprintf("What it was made of: SELECT * FROM lock_history.load_by('%s', '%s');", clock(a.StartedAt), clock(a.EndedAt))
	}
}

// clock writes a time as it can be put into a query.
func clock(m snapshot.Micros) string { return m.Time().Format("2006-01-02 15:04:05+00") }

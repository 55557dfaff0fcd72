package sampler

import (
	"slices"

	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const (
	// textBudget bounds the sessions that are asked for the text of their
	// statement after each second, at 1 to 2 µs each. Statements that run for
	// long, or often, come first by themselves: who is seen is asked.
	textBudget = 20
	// textTries bounds those of them that are asked because of one statement, so
	// that a short one, seldom met, does not keep the others from being asked.
	textTries = 3
	// maxTexts bounds the statements remembered; beyond it their texts are
	// fetched again, which the store does not write twice.
	maxTexts = 10_000

	keyTexts = "probe texts"
)

// textKey is a statement, and whose.
type textKey struct {
	queryID        int64
	database, role uint32
}

// textMeter fetches the texts of statements that were seen running, while they
// run. Who runs another one by then tells the text of that, if it is not known.
type textMeter struct {
	known map[textKey]struct{} // fetched since the store began a new segment
	keys  []textKey            // to be asked for now, and of whom
	refs  []Ref
	found []*snapshot.Session // not yet flushed
}

func newTextMeter() textMeter {
	return textMeter{known: make(map[textKey]struct{}), keys: make([]textKey, 0, textBudget), refs: make([]Ref, 0, textBudget)}
}

// see takes note of a run. Of many that run a statement the last are asked: they
// are most likely to do so still.
func (m *textMeter) see(r *snapshot.Run) {
	k := textKey{r.QueryID, r.Database, r.Role}
	if _, ok := m.known[k]; ok {
		return
	}
	ref := Ref{Slot: r.Slot, Pid: r.Pid}
	if slices.Contains(m.refs, ref) {
		return
	}
	tries := 0
	for i := range m.keys {
		if m.keys[i] == k {
			tries++
		}
	}
	switch {
	case tries >= textTries:
		oldest := slices.Index(m.keys, k)
		copy(m.keys[oldest:], m.keys[oldest+1:])
		copy(m.refs[oldest:], m.refs[oldest+1:])
		m.keys[len(m.keys)-1], m.refs[len(m.refs)-1] = k, ref
	case len(m.keys) < textBudget:
		m.keys, m.refs = append(m.keys, k), append(m.refs, ref)
	}
}

// take keeps what a session runs.
func (m *textMeter) take(raw *RawSession, at snapshot.Micros) {
	k := textKey{raw.QueryID, raw.Database, raw.Role}
	if _, ok := m.known[k]; ok || raw.Status != snapshot.SessionFound || raw.QueryID == 0 || len(raw.Text) == 0 {
		return
	}
	if len(m.known) >= maxTexts {
		clear(m.known)
	}
	m.known[k] = struct{}{}
	m.found = append(m.found, sessionOf(raw, at))
}

// forget has all texts fetched again: the segment that is open lacks them.
func (m *textMeter) forget() { clear(m.known) }

// readTexts asks for the texts of statements that the last second had for the
// first time.
func (s *Sampler) readTexts() {
	m := &s.texts
	if len(m.refs) == 0 {
		return
	}
	if s.o.Config.QueryText != querytext.Off {
		err := s.o.Probes.Sessions(m.refs, s.o.Config.QueryLength, func(_ int, raw *RawSession) {
			m.take(raw, s.wake.Now)
		})
		if err != nil {
			s.errors++
			s.o.Log.Add(report.Message{Level: report.Warning, Key: keyTexts, Text: "could not read the texts of statements: " + err.Error(), Hint: hintProbeHasFailed})
		} else {
			s.o.Log.Over(keyTexts)
		}
	}
	m.keys, m.refs = m.keys[:0], m.refs[:0]
}

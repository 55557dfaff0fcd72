package historytest

import (
	"math/rand/v2"
	"time"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/snapshot"
)

// What a second of a Mix has.
const (
	Sessions     = 50 // active ones, on average
	Combinations = 80 // of event and statement
)

// Mix makes seconds of a server under steady load: 50 sessions of two roles in
// one database, each second some 80 combinations of event and statement out of
// many, a few of the statements taking most of the time.
type Mix struct {
	*rand.Rand
	statements *rand.Zipf
	ids        []int64
	database   uint32
}

// NewMix returns one with so many distinct statements.
func NewMix(seed uint64, statements int, database uint32) *Mix {
	m := &Mix{Rand: rand.New(rand.NewPCG(seed, 1)), database: database}
	m.statements = rand.NewZipf(m.Rand, 1.1, 8, uint64(statements-1))
	for range statements {
		m.ids = append(m.ids, int64(m.Uint64()))
	}
	return m
}

// events are what sessions wait for, as often as they stand here.
func events() []history.Load {
	return []history.Load{
		{EventType: history.CPU, Event: history.CPU, Mode: snapshot.NoLWLock},
		{EventType: history.CPU, Event: history.CPU, Mode: snapshot.NoLWLock},
		{EventType: "IO", Event: "DataFileRead", Mode: snapshot.NoLWLock},
		{EventType: "IO", Event: "DataFileRead", Mode: snapshot.NoLWLock},
		{EventType: "LWLock", Event: "WALWrite", Mode: snapshot.LWWaitUntilFree},
		{EventType: "LWLock", Event: "BufferContent", Mode: snapshot.LWExclusive},
		{EventType: "LWLock", Event: "BufferContent", Mode: snapshot.LWShared},
		{EventType: "Lock", Event: "transactionid", Mode: snapshot.NoLWLock},
		{EventType: "Client", Event: "ClientWrite", Mode: snapshot.NoLWLock},
		{EventType: "IO", Event: "WALSync", Mode: snapshot.NoLWLock},
	}
}

// Second returns the second that begins at at; its loads add up to Sessions.
func (m *Mix) Second(at snapshot.Micros) history.Second {
	s := history.Second{At: at, Sampled: time.Second, Clients: 2 * Sessions * time.Second, Active: Sessions * time.Second}
	at1 := make(map[history.Load]int)
	kinds := events()
	var weights []float64
	var sum float64
	for range 4 * Combinations {
		if len(s.Loads) == Combinations {
			break
		}
		l := kinds[m.IntN(len(kinds))]
		statement := m.statements.Uint64()
		l.QueryID, l.BackendType, l.Database = m.ids[statement], "client backend", m.database
		l.Role = 10 + uint32(statement%2)*6161 // the bootstrap role and one that is gone
		weight := 0.02 + m.ExpFloat64()        // some milliseconds at least
		sum += weight
		if i, ok := at1[l]; ok {
			weights[i] += weight
			continue
		}
		at1[l] = len(s.Loads)
		s.Loads, weights = append(s.Loads, l), append(weights, weight)
	}
	for i := range s.Loads {
		s.Loads[i].Time = time.Duration(weights[i] / sum * Sessions * float64(time.Second))
	}
	return s
}

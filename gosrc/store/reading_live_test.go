package store

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"pg_lock_history/gosrc/historytest"
	"pg_lock_history/gosrc/snapshot"
)

// Views of what is kept by second look at the seconds of their range and at the
// dictionary, each once: they do not multiply the one by the other, whatever the
// planner takes their number for: nobody analyzes partitioned tables. Rows are counted,
// nothing is timed.
func TestLiveReadingIsLinear(t *testing.T) {
	l := newLab(t, true)
	const segments, minutes = 3, 4
	l.minute0()
	day := historytest.NewDay(1, 2000, l.databaseOID(), l.oid(`SELECT 'pg_class'::regclass::oid`))
	l.start()
	var began snapshot.Micros // of the last segment
	for range segments {
		l.turn()
		began = l.minute0()
		for range minutes {
			l.flushed(l.push(time.Minute, *day.Minute(l.now, 0)))
		}
	}
	dims := l.float(`SELECT count(*) FROM lock_history.dim`)
	for _, view := range []string{"load", "lwlocks", "hot_pages", "fast_path", "wait_histogram"} {
		t.Run(view, func(t *testing.T) {
			result := l.float(`SELECT count(*) FROM lock_history.`+view+` WHERE at >= $1::timestamptz`, began.Time())
			if result < minutes {
				t.Fatalf("%v rows", result)
			}
			var plan []struct{ Plan node }
			var text string
			if err := l.db.QueryRow(context.Background(), `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT * FROM lock_history.`+view+` WHERE at >= $1::timestamptz`, began.Time()).Scan(&text); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(text), &plan); err != nil {
				t.Fatal(err)
			}
			if seen, most := plan[0].Plan.rows(), 3*(dims+result); seen > most {
				t.Errorf("a step of the plan went over %.0f rows, for %.0f rows and %.0f of the dictionary", seen, result, dims)
			}
		})
	}
}

type node struct {
	Rows    float64 `json:"Actual Rows"`
	Removed float64 `json:"Rows Removed by Join Filter"`
	Loops   float64 `json:"Actual Loops"`
	Plans   []node
}

// rows returns the most that one step of the plan went over.
func (n node) rows() float64 {
	most := (n.Rows + n.Removed) * n.Loops
	for _, below := range n.Plans {
		most = max(most, below.rows())
	}
	return most
}

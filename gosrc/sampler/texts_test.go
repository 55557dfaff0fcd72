package sampler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pg_lock_history/gosrc/config"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/snapshot"
)

// seen is a second in which statements were seen, each in the slot of its place.
func seen(statements ...int64) func(*server) {
	return func(s *server) {
		s.seconds = []snapshot.Second{{Second: s.wall(), SampledUs: 1e6, Samples: 100}}
		for i, q := range statements {
			s.runs = append(s.runs, snapshot.Run{Second: s.wall(), QueryID: q, TimeUs: 1e6, Slot: int32(i), Pid: 100 + int32(i),
				LWLockMode: snapshot.NoLWLock, Database: 5, Role: 10})
		}
	}
}

func list(from, to int) string {
	var out []string
	for n := from; n <= to; n++ {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, ",")
}

func TestTextsOfStatements(t *testing.T) {
	on := testConfig()
	on.TrackLoad = true
	off := on
	off.QueryText = querytext.Off
	var many []int64
	all := make(map[int32]int64)
	for i := range 100 {
		many = append(many, int64(i+1))
		all[int32(i)] = int64(i + 1)
	}
	tests := []struct {
		name    string
		cfg     config.Config
		running map[int32]int64 // statements by slot when sessions are asked
		seconds [][]int64       // statements that each second had
		rewrite int             // after so many seconds another segment begins; 0: none does
		fails   bool
		want    string // texts by second
		asked   int
	}{
		{"one session, asked once", on, map[int32]int64{0: 7}, [][]int64{{7}, {7}, {7}}, 0, false, "7||", 1},
		{"no identifier, no question", on, nil, [][]int64{{0, 0}}, 0, false, "", 0},
		{"runs another one by now", on, map[int32]int64{0: 8}, [][]int64{{7}, {7}, {8}}, 0, false, "8||", 2},
		{"gone", on, nil, [][]int64{{7}}, 0, false, "", 1},
		{"of several the last are asked", on, map[int32]int64{0: 8, 1: 9, 2: 7, 3: 7, 4: 7}, [][]int64{{7, 7, 7, 7, 7}}, 0, false, "7", 3},
		{"again in another segment", on, map[int32]int64{0: 7}, [][]int64{{7}, {7}, {7}, {7}}, 2, false, "7||7|", 2},
		{"no texts wanted", off, map[int32]int64{0: 7}, [][]int64{{7}}, 0, false, "", 0},
		{"a probe that fails", on, map[int32]int64{0: 7}, [][]int64{{7}, {7}}, 0, true, "|", 2},
		{"many, so many a second", on, all, [][]int64{many, many, many, many, many, many}, 0, false,
			strings.Join([]string{list(1, 20), list(21, 40), list(41, 60), list(61, 80), list(81, 100), ""}, "|"), 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv, sink := &server{}, &recorder{}
			srv.sessions = func(refs []Ref, each func(int, *RawSession)) error {
				if tt.fails {
					return errors.New("not now")
				}
				for i, r := range refs {
					raw := RawSession{Status: snapshot.SessionGone, Slot: r.Slot, Pid: r.Pid}
					if q, ok := tt.running[r.Slot]; ok {
						raw.Status, raw.Database, raw.Role, raw.QueryID, raw.Text = snapshot.SessionFound, 5, 10, q, fmt.Append(nil, q)
					}
					each(i, &raw)
				}
				return nil
			}
			for i, statements := range tt.seconds {
				at := time.Duration(i+1) * time.Second
				srv.script = append(srv.script, moment{at: at, do: seen(statements...), reasons: WokeActivity | WokeFlush})
				if i+1 == tt.rewrite {
					srv.script = append(srv.script, moment{at: at + 500*time.Millisecond, do: func(*server) { sink.rewrite = true }, reasons: WokeFlush})
				}
			}
			play(t, srv, sink, tt.cfg, time.Duration(len(tt.seconds)+1)*time.Second)

			got := make([]string, len(tt.seconds))
			for _, b := range sink.batches {
				var texts []string
				for _, s := range b.Texts {
					if s.Query != fmt.Sprint(s.QueryID) || s.Database != 5 || s.Role != 10 || s.SeenAt == 0 {
						t.Errorf("text %+v", s)
					}
					texts = append(texts, s.Query)
				}
				if len(texts) > 0 {
					got[b.CompleteTo.Sub(start)/time.Second-1] = strings.Join(texts, ",")
				}
			}
			if all := strings.Join(got, "|"); all != tt.want || len(srv.asked) != tt.asked {
				t.Errorf("texts %q, %d sessions asked, want %q and %d", all, len(srv.asked), tt.want, tt.asked)
			}
		})
	}
}

func TestTextsRememberedAreBounded(t *testing.T) {
	m := newTextMeter()
	for q := range int64(3 * maxTexts) {
		m.take(&RawSession{Status: snapshot.SessionFound, QueryID: q + 1, Text: []byte("x")}, start)
		m.found = nil
		if len(m.known) > maxTexts {
			t.Fatalf("%d are remembered", len(m.known))
		}
	}
}

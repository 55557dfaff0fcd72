package statementtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// In the tables a step is one sample of one session: "text", or with what is
// special about it behind bars.
//
//	UPDATE | xid         the transaction has written by then
//	UPDATE | same        another sample of the same run
//	UPDATE | next        the first of the session's next transaction
//	UPDATE | pid         the first of another process in the slot
type player struct {
	m   *Memory
	now Sample
}

func (p *player) play(step string) {
	text, what, _ := strings.Cut(step, " | ")
	p.now.At += 10
	p.now.Text = text
	for _, word := range strings.Fields(what) {
		switch word {
		case "xid":
			p.now.Xid = 700 + p.now.Lxid
		case "next":
			p.now.Lxid, p.now.Xid, p.now.XactStart = p.now.Lxid+1, 0, p.now.At-1
		case "pid":
			p.now.Pid, p.now.Xid = p.now.Pid+1, 0
			p.now.BackendStart, p.now.XactStart = p.now.At-2, p.now.At-1
		case "same":
		default:
			panic("step " + step)
		}
	}
	if !strings.Contains(what, "same") {
		p.now.QueryStart = p.now.At - 1
	}
	p.m.Note(p.now)
}

func newPlayer() *player {
	return &player{m: New(), now: Sample{At: 1000, BackendStart: 500, XactStart: 990, Pid: 42, Lxid: 1}}
}

func texts(m *Memory) string {
	all := m.Statements()
	slices.SortFunc(all, func(a, b Statement) int { return cmp.Compare(a.FirstSeen, b.FirstSeen) })
	var out []string
	for _, s := range all {
		out = append(out, s.Text)
	}
	return strings.Join(out, ", ")
}

func TestWhatIsRemembered(t *testing.T) {
	reads := func(from, to int) (out []string) {
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprintf("s%d", i))
		}
		return out
	}
	tests := []struct {
		name    string
		steps   []string
		want    string
		leftOut int
	}{
		{"the story", []string{"BEGIN", "UPDATE | xid", "SELECT", "ping", "ping | same"}, "BEGIN, UPDATE, SELECT, ping", 0},
		{"the same text again is the same statement", []string{"UPDATE | xid", "ping", "SELECT", "ping", "ping"}, "UPDATE, ping, SELECT", 0},
		{"full", reads(1, 8), "s1, s2, s3, s4, s5, s6, s7, s8", 0},
		{"the oldest makes room", reads(1, 10), "s3, s4, s5, s6, s7, s8, s9, s10", 2},
		{"what was run again is not the oldest", append(append(reads(1, 8), "s1"), reads(9, 10)...), "s1, s4, s5, s6, s7, s8, s9, s10", 2},
		{"the first that wrote stays", append([]string{"BEGIN", "UPDATE | xid"}, reads(1, 20)...), "UPDATE, s14, s15, s16, s17, s18, s19, s20", 14},
		{"written without being seen to", append([]string{"BEGIN", "s0", "s0 | same xid"}, reads(1, 20)...), "s0, s14, s15, s16, s17, s18, s19, s20", 14},
		{"the next transaction begins anew", []string{"BEGIN", "UPDATE | xid", "SELECT | next"}, "SELECT", 0},
		{"and knows its own first write", append([]string{"BEGIN", "UPDATE | xid", "BEGIN | next", "DELETE | xid"}, reads(1, 9)...), "DELETE, s3, s4, s5, s6, s7, s8, s9", 3},
		{"the same text in the next transaction", []string{"UPDATE | xid", "UPDATE | next"}, "UPDATE", 0},
		{"another process in the slot", []string{"BEGIN", "UPDATE | xid", "SELECT | pid"}, "SELECT", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlayer()
			for _, step := range tt.steps {
				p.play(step)
			}
			if got := texts(p.m); got != tt.want || p.m.LeftOut() != tt.leftOut {
				t.Errorf("got %s, %d left out; want %s, %d", got, p.m.LeftOut(), tt.want, tt.leftOut)
			}
		})
	}
}

// A pooled connection runs one transaction after the other under one pid.
func TestSamplesOfOneTransaction(t *testing.T) {
	p := newPlayer()
	p.play("UPDATE | xid")
	p.play("UPDATE | next")
	if got := p.m.Statements(); len(got) != 1 || got[0].Samples != 1 || got[0].FirstSeen != p.now.At || p.m.Xid() != 0 {
		t.Errorf("got %+v, xid %d: something of the transaction before", got, p.m.Xid())
	}
}

func TestWhatASampleSays(t *testing.T) {
	const active, idle = 2, 3
	m := New()
	s := Sample{At: 100, BackendStart: 1, XactStart: 90, QueryStart: 95, Pid: 42, Lxid: 7, State: active, WaitEvent: 0x03000000, Text: "UPDATE"}
	note := func(change func()) bool {
		change()
		return m.Note(s)
	}
	if !note(func() {}) {
		t.Error("the text of a new statement was not asked for")
	}
	if note(func() { s.At, s.WaitEvent, s.QueryID, s.Text = 110, 0, 9, "not to be read" }) {
		t.Error("the text was asked for again")
	}
	note(func() { s.At, s.State = 120, idle })
	want := Statement{FirstSeen: 100, LastSeen: 120, QueryStart: 95, QueryID: 9, Samples: 3, State: idle, WaitEvent: 0x03000000, Length: 6, Text: "UPDATE"}
	if got := m.Statements(); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Another run: what is said of the statement goes on.
	note(func() { s.At, s.QueryStart, s.State, s.QueryID, s.Text = 130, 125, active, 0, "UPDATE" })
	want.LastSeen, want.QueryStart, want.Samples, want.State = 130, 125, 4, active
	if got := m.Statements(); len(got) != 1 || got[0] != want {
		t.Errorf("run again: got %+v, want %+v", got, want)
	}
}

func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", TextSize)
	p := newPlayer()
	for _, text := range []string{long[1:], long, long + "a", long + "b", long + "ab"} {
		p.play(text)
	}
	got := p.m.Statements()
	if len(got) != 4 {
		t.Fatalf("%d statements, want 4: two differ in nothing that is kept", len(got))
	}
	for _, s := range got {
		if len(s.Text) > TextSize || s.Text != long[:len(s.Text)] {
			t.Errorf("text of %d bytes where %d are kept", len(s.Text), TextSize)
		}
	}
}

// model is the same in a few lines of Go, with memory for all there is.
type model struct {
	last    Sample
	all     []Statement
	turns   []int
	newest  int
	writer  int
	turn    int
	leftOut int
	xid     uint32
}

func (m *model) note(s Sample) {
	if s.Lxid != m.last.Lxid || s.Pid != m.last.Pid || s.BackendStart != m.last.BackendStart || s.XactStart != m.last.XactStart {
		*m = model{writer: -1, newest: -1}
	}
	m.last = s
	if m.newest < 0 || m.all[m.newest].QueryStart != s.QueryStart {
		kept := s.Text[:min(len(s.Text), TextSize)]
		at := slices.IndexFunc(m.all, func(k Statement) bool { return k.Text == kept && int(k.Length) == len(s.Text) })
		if at < 0 {
			fresh := Statement{FirstSeen: s.At, Length: uint32(len(s.Text)), Text: kept}
			if at = len(m.all); at < Kept {
				m.all, m.turns = append(m.all, fresh), append(m.turns, 0)
			} else {
				at = -1
				for i := range m.all {
					if i != m.writer && (at < 0 || m.turns[i] < m.turns[at]) {
						at = i
					}
				}
				m.all[at] = fresh
				m.leftOut++
			}
		}
		m.newest = at
		m.all[at].QueryStart = s.QueryStart
	}
	if s.Xid != 0 && m.xid == 0 {
		m.xid, m.writer = s.Xid, m.newest
	}
	m.turn++
	m.turns[m.newest] = m.turn
	k := &m.all[m.newest]
	k.LastSeen, k.Samples, k.State = s.At, k.Samples+1, s.State
	if s.QueryID != 0 {
		k.QueryID = s.QueryID
	}
	if s.WaitEvent != 0 {
		k.WaitEvent = s.WaitEvent
	}
}

// Any samples, also such as no server gives: the clock goes where it wants.
func FuzzMemory(f *testing.F) {
	f.Add([]byte("\x00\x10\x20\x30\x44\x50\x60\x70\x80\x90\xa0\xb0\xc1\xd2\xe3\xf4"))
	f.Add([]byte{0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0x94, 0xa4, 0x02, 0x04, 0x14})
	f.Fuzz(func(t *testing.T, ops []byte) {
		m := New()
		want := &model{}
		s := Sample{At: 100, BackendStart: 1, XactStart: 2, QueryStart: 3, Pid: 5, Lxid: 1, Text: "t0"}
		for i, op := range ops {
			switch op & 7 {
			case 0: // the same run
			case 1:
				s.Lxid, s.Xid = s.Lxid+1, 0
			case 2:
				s.Xid = 9
			case 3:
				s.At = int64(op) // set back
			default:
				s.QueryStart++
				s.Text = strings.Repeat("t", int(op>>4)*70) + "|"
			}
			s.At++
			s.State, s.WaitEvent, s.QueryID = int32(op>>5), uint32(op&16), int64(op&32)
			m.Note(s)
			want.note(s)
			if got := m.Statements(); !slices.Equal(got, want.all) || m.LeftOut() != want.leftOut || m.Xid() != want.xid {
				t.Fatalf("after sample %d: got %+v (%d left out), want %+v (%d)", i, got, m.LeftOut(), want.all, want.leftOut)
			}
		}
	})
}

package statementtest

/*
#include "statements.h"
*/
import "C"

import (
	"bytes"
	"unsafe"
)

// What the C code is built with.
const (
	Kept     = C.PLH_STATEMENTS_KEPT
	TextSize = C.PLH_STATEMENT_TEXT
)

// Sample is PlhStatementSample with its text.
type Sample struct {
	At, BackendStart, XactStart, QueryStart, QueryID int64
	Pid                                              int32
	Lxid, Xid                                        uint32
	State                                            int32
	WaitEvent                                        uint32
	Text                                             string
}

// Statement is PlhKnownStatement with what is kept of its text.
type Statement struct {
	FirstSeen, LastSeen, QueryStart, QueryID int64
	Samples                                  uint32
	State                                    int32
	WaitEvent                                uint32
	Length                                   uint32
	Text                                     string
}

// Memory is the memory of one slot.
type Memory struct{ known C.PlhKnownTransaction }

// New returns a memory as a slot has it at first: what the texts hold is
// left over from something else.
func New() *Memory {
	m := &Memory{}
	garbage := unsafe.Slice((*byte)(unsafe.Pointer(&m.known.texts)), unsafe.Sizeof(m.known.texts))
	copy(garbage, bytes.Repeat([]byte{0xA5}, len(garbage)))
	return m
}

// Note takes in one sample as the probe does, and reports whether its text was
// asked for.
func (m *Memory) Note(s Sample) (read bool) {
	c := C.PlhStatementSample{
		at: C.int64_t(s.At), backend_start: C.int64_t(s.BackendStart), xact_start: C.int64_t(s.XactStart),
		query_start: C.int64_t(s.QueryStart), query_id: C.int64_t(s.QueryID), pid: C.int32_t(s.Pid),
		lxid: C.uint32_t(s.Lxid), xid: C.uint32_t(s.Xid), state: C.int32_t(s.State),
		wait_event_info: C.uint32_t(s.WaitEvent),
	}
	if bool(C.plh_is_newest_statement(&m.known, &c)) {
		C.plh_note_statement(&m.known, &c, nil)
		return false
	}
	c.length = C.uint32_t(len(s.Text))
	// No more than the probe copies.
	text := append([]byte(s.Text[:min(len(s.Text), TextSize)]), 0)
	C.plh_note_statement(&m.known, &c, (*C.char)(unsafe.Pointer(&text[0])))
	return true
}

// Statements returns what is known, in no order.
func (m *Memory) Statements() []Statement {
	var out []Statement
	for i := range min(int(m.known.n_statements), Kept) {
		k := &m.known.statements[i]
		text := unsafe.Slice((*byte)(unsafe.Pointer(&m.known.texts[i])), TextSize)
		out = append(out, Statement{
			FirstSeen: int64(k.first_seen), LastSeen: int64(k.last_seen), QueryStart: int64(k.query_start), QueryID: int64(k.query_id),
			Samples: uint32(k.samples), State: int32(k.state), WaitEvent: uint32(k.wait_event_info), Length: uint32(k.length),
			Text: string(text[:min(int(k.length), TextSize)]),
		})
	}
	return out
}

// LeftOut returns how many statements had to make room.
func (m *Memory) LeftOut() int { return int(m.known.left_out) }

// Xid returns the transaction's id, 0 while it is not known to have written.
func (m *Memory) Xid() uint32 { return uint32(m.known.xid) }

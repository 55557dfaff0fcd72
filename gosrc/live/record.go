package live

import (
	"encoding/binary"
	"unicode/utf8"

	"pg_lock_history/gosrc/snapshot"
)

// The layout of PlhRecord and PlhField in probe.h; package probe compares.
const (
	PrefixBytes  = 24 // length, role, at, number of fields, four unused bytes
	FieldNull    = 0
	FieldInt     = 1
	FieldInts    = 2
	FieldText    = 3
	FieldPrivate = 0x80
)

// records are records one after the other. Those that make one call begin,
// then a method for each field, then end.
type records struct {
	buf     []byte
	maxText int // texts are cut to so many bytes
	cut     int // bytes cut off so far

	start  int // of the record at work
	fields uint32
}

func (r *records) reset(maxText int) {
	r.buf, r.maxText, r.cut = r.buf[:0], maxText, 0
}

// begin starts a record of the given role's texts; at is the end of the wait.
func (r *records) begin(role uint32, at snapshot.Micros) {
	r.start, r.fields = len(r.buf), 0
	r.buf = binary.NativeEndian.AppendUint32(r.buf, 0) // see end
	r.buf = binary.NativeEndian.AppendUint32(r.buf, role)
	r.buf = binary.NativeEndian.AppendUint64(r.buf, uint64(at))
	r.buf = binary.NativeEndian.AppendUint64(r.buf, 0)
}

func (r *records) end() {
	binary.NativeEndian.PutUint32(r.buf[r.start:], uint32(len(r.buf)-r.start))
	binary.NativeEndian.PutUint32(r.buf[r.start+16:], r.fields)
}

// drop takes back the record that was made last.
func (r *records) drop() { r.buf = r.buf[:r.start] }

func (r *records) kind(k byte) {
	r.fields++
	r.buf = append(r.buf, k)
}

func (r *records) null() { r.kind(FieldNull) }

func (r *records) nulls(n int) {
	for range n {
		r.null()
	}
}

func (r *records) int(v int64) { r.number(FieldInt, v) }

func (r *records) number(kind byte, v int64) {
	r.kind(kind)
	r.buf = binary.NativeEndian.AppendUint64(r.buf, uint64(v))
}

func (r *records) bool(v bool) {
	if v {
		r.int(1)
	} else {
		r.int(0)
	}
}

// nonZero is null for 0.
func (r *records) nonZero(v int64) {
	if v == 0 {
		r.null()
	} else {
		r.int(v)
	}
}

func (r *records) time(m snapshot.Micros) { r.nonZero(int64(m)) }

func (r *records) privateNonZero(v int64) {
	if v == 0 {
		r.kind(FieldNull | FieldPrivate)
	} else {
		r.number(FieldInt|FieldPrivate, v)
	}
}

func (r *records) ints(vs []int32) {
	r.kind(FieldInts)
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(len(vs)))
	for _, v := range vs {
		r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(v))
	}
}

// someInts is null for none.
func (r *records) someInts(vs []int32) {
	if len(vs) == 0 {
		r.null()
	} else {
		r.ints(vs)
	}
}

// text is null for "".
func (r *records) text(s string) { r.anyText(0, s) }

func (r *records) privateText(s string) { r.anyText(FieldPrivate, s) }

func (r *records) anyText(private byte, s string) {
	if s == "" {
		r.kind(FieldNull | private)
		return
	}
	n := len(s)
	if n > r.maxText {
		n = r.maxText
		for n > 0 && !utf8.RuneStart(s[n]) {
			n-- // not in the middle of a character
		}
		r.cut += len(s) - n
	}
	r.kind(FieldText | private)
	r.buf = binary.NativeEndian.AppendUint32(r.buf, uint32(n))
	r.buf = append(r.buf, s[:n]...)
}

// lengthOf returns the length of the first record in buf, which has one.
func lengthOf(buf []byte) int { return int(binary.NativeEndian.Uint32(buf)) }

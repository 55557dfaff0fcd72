package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"pg_lock_history/gosrc/history"
	"pg_lock_history/gosrc/querytext"
	"pg_lock_history/gosrc/report"
	"pg_lock_history/gosrc/snapshot"
)

const (
	channel = "pg_lock_history"

	// noticeWait is how long a notification may wait for the lock that all of a
	// server share when they commit one. Our rows wait behind it.
	noticeWait = 100 * time.Millisecond

	// maxNotices bounds the notifications of one hand. When the writer catches
	// up, the oldest are of no use any more.
	maxNotices = 100

	// maxNoticeText bounds each text in one. The server takes less than 8000
	// bytes in all, and a character may take 6 of them.
	maxNoticeText = 256

	keyNotice = "store: notify"
)

// notice is what listeners get. There is nothing in it that not everybody who
// may connect is to see: LISTEN asks for no right.
type notice struct {
	Event         string  `json:"event"` // started, ended
	Node          string  `json:"node"`
	StartedAt     string  `json:"started_at"`
	EndedAt       *string `json:"ended_at"`
	EndedAs       *string `json:"ended_as"`
	WaitEventType *string `json:"wait_event_type"` // null: all that were not on CPU
	Observed      rounded `json:"observed"`
	Expected      rounded `json:"expected"`
	Band          rounded `json:"band"`
	LeadingEvent  *string `json:"leading_event"`
	RootPid       *int32  `json:"root_pid"`
}

// rounded shows two digits.
type rounded float64

func (r rounded) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.2f", float64(r)), nil }

// payload is a in JSON of ASCII alone, which every encoding of a database can
// hold.
func payload(node string, a *history.Anomaly) (string, error) {
	n := notice{Event: "started", Node: querytext.Sanitize(node, maxNoticeText), StartedAt: stamp(a.StartedAt),
		WaitEventType: text(a.WaitEventType), Observed: rounded(a.Observed), Expected: rounded(a.Expected), Band: rounded(a.Band),
		LeadingEvent: text(querytext.Sanitize(a.LeadingEvent, maxNoticeText)), RootPid: nonZero(a.RootPid)}
	if a.EndedAt != 0 {
		n.Event, n.EndedAt, n.EndedAs = "ended", text(stamp(a.EndedAt)), text(string(a.End))
	}
	raw, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("describe an anomaly: %w", err)
	}
	return asciiJSON(raw), nil
}

func stamp(m snapshot.Micros) string { return m.Time().Format("2006-01-02T15:04:05.000Z07:00") }

// asciiJSON escapes all other characters, which are in strings only.
func asciiJSON(raw []byte) string {
	var b bytes.Buffer
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		raw = raw[n:]
		switch high, low := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case high != utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// notices returns the payloads for what has started and ended in h.
func (w *writer) notices(h *hand) (payloads []string) {
	for i := range h.items {
		b := h.items[i].Batch
		if h.run != 0 && b.Number <= h.known {
			continue
		}
		for j := range b.Anomalies {
			if a := &b.Anomalies[j]; a.Notify {
				if p, err := payload(w.cfg.NodeName, a); err == nil {
					payloads = append(payloads, p)
				}
			}
		}
	}
	if over := len(payloads) - maxNotices; over > 0 {
		w.st.NoticesDropped += uint64(over)
		payloads = payloads[over:]
	}
	return payloads
}

// notify tells those who LISTEN, in a transaction of its own: whatever comes of
// it, the rows are in the tables. What does not go through is not tried again.
func (w *writer) notify(ctx context.Context, payloads []string) {
	if len(payloads) == 0 || w.session == nil {
		return
	}
	err := pgx.BeginFunc(ctx, w.session.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, noticeWait.Milliseconds())); err != nil {
			return err
		}
		for _, p := range payloads {
			if _, err := tx.Exec(ctx, `SELECT pg_catalog.pg_notify($1::text, $2::text)`, channel, p); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		w.log.Over(keyNotice)
		return
	}
	w.st.NoticesDropped += uint64(len(payloads))
	if errors.Is(err, context.Canceled) || w.ends() && serverEnds(err) {
		w.disconnect() // a shutdown, and need not hear of it
		return
	}
	w.st.Errors++
	w.log.Add(report.Message{Level: report.Warning, Key: keyNotice, Text: fmt.Sprintf("could not notify listeners on %s of an anomaly", channel),
		Detail: cut(err.Error(), maxDetailBytes), Hint: "It is in lock_history.anomalies; listeners do not get it any more."})
	if w.session.conn.IsClosed() {
		w.disconnect()
	}
}

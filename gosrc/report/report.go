package report

import (
	"fmt"
	"sync"
	"time"
)

// Level is the weight of a message; the values are those of PlhLevel in probe.h.
type Level int32

// The levels.
const (
	Debug   Level = 0
	Info    Level = 1
	Warning Level = 2
)

// Message is one entry for the server log.
type Message struct {
	Level  Level
	Key    string // condition this belongs to, "" for none
	Text   string
	Detail string
	Hint   string
}

const (
	// maxPending bounds what waits for the main thread, which comes by once a
	// second and whenever it is woken.
	maxPending = 64
	// maxKeys bounds the conditions remembered.
	maxKeys = 64
	// repeatEvery is how often a lasting condition is told again.
	repeatEvery = time.Hour
)

type condition struct {
	message Message
	toldAt  time.Time
	since   int // occurrences not told
}

// Log is safe for use by any goroutine.
type Log struct {
	wake func()

	mu      sync.Mutex // protects all below
	pending []Message
	lost    int
	known   map[string]*condition
}

// New returns an empty log; wake is called after a message was added and must
// not block.
func New(wake func()) *Log {
	return &Log{wake: wake, known: make(map[string]*condition)}
}

// Add passes m on, or counts it when its condition is known to last.
func (l *Log) Add(m Message) { l.addAt(time.Now(), m) }

func (l *Log) addAt(now time.Time, m Message) {
	l.mu.Lock()
	told := l.tellLocked(now, m)
	l.mu.Unlock()
	if told {
		l.wake()
	}
}

func (l *Log) tellLocked(now time.Time, m Message) bool {
	if m.Key == "" {
		return l.appendLocked(m)
	}
	c := l.known[m.Key]
	if c == nil {
		if len(l.known) >= maxKeys {
			l.lost++
			return false
		}
		l.known[m.Key] = &condition{message: m, toldAt: now}
		return l.appendLocked(m)
	}
	c.since++
	if now.Sub(c.toldAt) < repeatEvery {
		return false
	}
	m.Text = fmt.Sprintf("%s (%d more times since it was last reported)", m.Text, c.since)
	c.toldAt, c.since = now, 0
	return l.appendLocked(m)
}

func (l *Log) appendLocked(m Message) bool {
	if len(l.pending) >= maxPending {
		l.lost++
		return false
	}
	l.pending = append(l.pending, m)
	return true
}

// Over ends the condition key: what was counted is told, and the next
// occurrence is news again.
func (l *Log) Over(key string) {
	l.mu.Lock()
	c := l.known[key]
	delete(l.known, key)
	told := c != nil && c.since > 0 && l.appendLocked(Message{
		Level: Info,
		Text:  fmt.Sprintf("over, after %d more times: %s", c.since, c.message.Text),
	})
	l.mu.Unlock()
	if told {
		l.wake()
	}
}

// Take returns the messages that wait, oldest first, and forgets them.
func (l *Log) Take() []Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 && l.lost == 0 {
		return nil
	}
	out := l.pending
	l.pending = nil
	if l.lost > 0 {
		out = append(out, Message{Level: Warning, Text: fmt.Sprintf("%d messages did not fit and are not shown", l.lost)})
		l.lost = 0
	}
	return out
}

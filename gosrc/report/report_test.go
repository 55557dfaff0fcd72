package report

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func texts(messages []Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.Text)
	}
	return out
}

func TestConditionIsToldOnceThenCounted(t *testing.T) {
	woken := 0
	l := New(func() { woken++ })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := Message{Level: Warning, Key: "refused", Text: "refused"}

	for i := range 100 {
		l.addAt(now.Add(time.Duration(i)*time.Second), m)
	}
	if got := texts(l.Take()); len(got) != 1 || got[0] != "refused" {
		t.Fatalf("told %q, want it once", got)
	}
	if woken != 1 {
		t.Errorf("woken %d times, want 1: a counted message must not wake the main thread", woken)
	}

	l.addAt(now.Add(2*time.Hour), m)
	if got := texts(l.Take()); len(got) != 1 || !strings.Contains(got[0], "100 more times") {
		t.Fatalf("after two hours told %q, want the count 100", got)
	}

	l.addAt(now.Add(2*time.Hour+time.Second), m)
	l.Over("refused")
	if got := texts(l.Take()); len(got) != 1 || !strings.Contains(got[0], "over, after 1 more times") {
		t.Fatalf("at the end told %q", got)
	}

	l.addAt(now, m)
	if got := texts(l.Take()); len(got) != 1 || got[0] != "refused" {
		t.Fatalf("a new condition told %q, want it as news", got)
	}
}

func TestKeysAreApart(t *testing.T) {
	l := New(func() {})
	l.Add(Message{Key: "a", Text: "a"})
	l.Add(Message{Key: "b", Text: "b"})
	l.Add(Message{Text: "c"})
	l.Add(Message{Text: "c"})
	if got := texts(l.Take()); strings.Join(got, "") != "abcc" {
		t.Errorf("told %q, want a, b, and c twice", got)
	}
}

func TestBounded(t *testing.T) {
	l := New(func() {})
	for i := range 10 * maxPending {
		l.Add(Message{Key: fmt.Sprint(i), Text: "x"})
	}
	if len(l.known) > maxKeys {
		t.Errorf("remembers %d conditions, at most %d are allowed", len(l.known), maxKeys)
	}
	got := l.Take()
	if len(got) != maxPending+1 {
		t.Fatalf("%d messages, want %d and one that says what did not fit", len(got), maxPending)
	}
	if last := got[len(got)-1].Text; !strings.HasPrefix(last, fmt.Sprint(9*maxPending)+" messages") {
		t.Errorf("last message %q does not count what was lost", last)
	}
}

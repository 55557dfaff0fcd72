package history

import "testing"

func TestOutcomes(t *testing.T) {
	tests := []struct {
		outcome Outcome
		word    string
		failed  bool
	}{
		{StillWaiting, "", false},
		{Granted, "granted", false},
		{Failed, "failed", true},
		{Unknown, "unknown", false},
		{LockTimeout, "lock_timeout", true},
		{StatementTimeout, "statement_timeout", true},
		{Cancelled, "cancelled", true},
		{Terminated, "terminated", true},
		{DeadlockVictim, "deadlock", true},
		{ServerStop, "server_stop", true},
		{RecoveryConflict, "recovery_conflict", true},
	}
	for _, tt := range tests {
		if got := tt.outcome.String(); got != tt.word {
			t.Errorf("%d is called %q, want %q", tt.outcome, got, tt.word)
		}
		if got := tt.outcome.IsFailure(); got != tt.failed {
			t.Errorf("%s is a failure: %t", tt.word, got)
		}
	}
}

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/croft-dev/croft/backend/postgres"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAPanicIsNoFault: the disk is full while the server writes its log. If the
// commit was written before that, it counts after the server's restart. Only an
// ERROR says that the statement was rolled back.
func TestAPanicIsNoFault(t *testing.T) {
	t.Parallel()
	for severity, want := range map[string]bool{"ERROR": true, "FATAL": false, "PANIC": false} {
		full := &pgconn.PgError{SeverityUnlocalized: severity, Code: "53100", Message: "could not write to log file"}
		if err := postgres.ExplainStore(t.Context(), fmt.Errorf("apply: %w", full)); store.IsFault(err) != want {
			t.Errorf("%s: a fault: %t; %v", severity, !want, err)
		}
	}
}

// TestARefusedLoginIsAFault: the server says FATAL, and no statement was sent.
func TestARefusedLoginIsAFault(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), testenv.Postgres(t).URL("nowhere"))
	if err == nil {
		defer st.Close()
		err = st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Release, Key: "k", Secret: tenure.NewSecret(),
		}})[0].Err
	}
	if !store.IsFault(err) {
		t.Errorf("a database that does not exist: %v", err)
	}
}

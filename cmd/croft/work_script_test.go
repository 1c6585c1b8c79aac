package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/testenv"
)

// The same scripts on every ledger. Those of one server share a database, so each has queues of its own.
func TestWorkScripts(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testscript.Run(t, scripts("work", func(e *testscript.Env) {
			e.Setenv("CROFT_STORE", "sqlite://"+filepath.ToSlash(filepath.Join(e.WorkDir, "croft.db")))
		}))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := testenv.Postgres(t).Database(t)
		testscript.Run(t, scripts("work", func(e *testscript.Env) { e.Setenv("CROFT_STORE", url) }))
	})
}

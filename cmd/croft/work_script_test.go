package main

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// The scripts run on every ledger, each with a ledger of its own, because
// workers look after the lost items of all queues.
func TestWorkScripts(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testscript.Run(t, scripts(t, "work", func(e *testscript.Env) { e.Setenv("CROFT_STORE", ledgerIn(e.WorkDir)) }))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		// The other scripts are about signals and stalls of processes.
		// proof/chaostest also tests what happens to a dead worker's items.
		server, urls := testenv.Postgres(t), map[string]string{}
		var files []string
		for _, name := range []string{"effects", "guards", "items", "stale", "worker"} {
			files = append(files, filepath.Join("testdata", "work", name+".txtar"))
			urls["script-"+name] = server.Database(t)
		}
		p := scripts(t, "work", func(e *testscript.Env) {
			e.Setenv("CROFT_STORE", urls[filepath.Base(e.WorkDir)])
			if filepath.Base(e.WorkDir) != "script-worker" { // one under the race detector is enough
				e.Setenv("RACE_PATH", e.Getenv("PATH"))
			}
		})
		p.Dir, p.Files = "", files
		testscript.Run(t, p)
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		// The other scripts are about signals and stalls of processes, too.
		var files []string
		for _, name := range []string{"effects", "guards", "items", "stale", "status", "worker"} {
			files = append(files, filepath.Join("testdata", "work", name+".txtar"))
		}
		p := scripts(t, "work", func(e *testscript.Env) {
			e.Setenv("RACE_PATH", e.Getenv("PATH"))
			e.Setenv("CROFT_STORE", ledgerServer(t, e))
		})
		p.Dir, p.Files = "", files
		testscript.Run(t, p)
	})
}

// ledgerServer serves a ledger of a script's own, and returns the URL.
func ledgerServer(t *testing.T, e *testscript.Env) string {
	t.Helper()
	url := ledgerIn(e.WorkDir)
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := work.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	srv := server.New(st, &server.Options{Ledger: ledger})
	front := httptest.NewServer(srv)
	e.Defer(func() {
		srv.Drain()
		front.Close()
		if err := errors.Join(ledger.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return front.URL
}

func ledgerIn(dir string) string {
	return "sqlite://" + filepath.ToSlash(filepath.Join(dir, "croft.db"))
}

// TestEveryCommandOfTheWorkPageWorks runs all blocks one after the other, as a
// reader would.
func TestEveryCommandOfTheWorkPageWorks(t *testing.T) {
	t.Parallel()
	tryBlocks(t, "docs/work.md", "", nil, `exec bash -eux page.sh
stdout ':0:published +published +sent'
grep '"pages": 3' published.json
`)
}

// TestTheWorkBlockOfTheReadmeWorks uses the simplest of agents.
func TestTheWorkBlockOfTheReadmeWorks(t *testing.T) {
	t.Parallel()
	agent := func(e *testscript.Env) {
		testenv.WriteProgram(t, filepath.Join(e.WorkDir, "agent.sh"), []byte("#!/bin/sh\nexec grep example.org\n"), 0o755)
	}
	tryBlocks(t, "README.md", "croft work", agent, `exec bash -eux page.sh
env CROFT_STORE=sqlite://$WORK/work.db
exec croft work ls --json
stdout '"state":"done"'
stdout '"queue":"pages"'
`)
}

// tryBlocks runs a script with the shell blocks of a page in page.sh. It takes
// those that contain a word, or all.
func tryBlocks(t *testing.T, path, word string, setup func(*testscript.Env), script string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	script += "-- page.sh --\n"
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		if block, _, _ = strings.Cut(block, "```\n"); strings.Contains(block, word) {
			script += block
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if setup == nil {
		setup = func(*testscript.Env) {}
	}
	p := scripts(t, "", setup)
	p.Dir = dir
	testscript.Run(t, p)
}

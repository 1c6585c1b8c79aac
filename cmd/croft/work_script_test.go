package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/testenv"
)

// The same scripts on every ledger, each with one of its own: workers look after the lost items of all queues.
func TestWorkScripts(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testscript.Run(t, scripts("work", func(e *testscript.Env) { e.Setenv("CROFT_STORE", ledgerIn(e.WorkDir)) }))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob(filepath.Join("testdata", "work", "*.txtar"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no scripts: %v", err)
		}
		server, urls := testenv.Postgres(t), map[string]string{}
		for _, file := range files {
			urls["script-"+strings.TrimSuffix(filepath.Base(file), ".txtar")] = server.Database(t)
		}
		testscript.Run(t, scripts("work", func(e *testscript.Env) { e.Setenv("CROFT_STORE", urls[filepath.Base(e.WorkDir)]) }))
	})
}

func ledgerIn(dir string) string {
	return "sqlite://" + filepath.ToSlash(filepath.Join(dir, "croft.db"))
}

// TestEveryCommandOfTheWorkPageWorks: all blocks, one after the other, as its reader would try them.
func TestEveryCommandOfTheWorkPageWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/work.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```\n")
		all.WriteString(block)
	}
	script := "exec bash -eux page.sh\n" +
		"stdout ':0:published +published +sent'\n" +
		"grep '\"pages\": 3' published.json\n" +
		"-- page.sh --\n" + all.String()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := scripts("", func(*testscript.Env) {})
	p.Dir = dir
	testscript.Run(t, p)
}

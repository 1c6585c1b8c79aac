package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/server/access"
)

// TestTheExamplesOfTheServerPageWork: the calls with curl, and the policy.
func TestTheExamplesOfTheServerPageWork(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	block := func(begins string) string {
		i := strings.Index(page, "\n"+begins)
		if i < 0 {
			t.Fatalf("the page has no block that begins with %q", begins)
		}
		found, _, _ := strings.Cut(page[i+1:], "```")
		return found
	}
	for _, begins := range []string{"# ann's token", "# oidc NAME"} {
		if _, err := access.Parse([]byte(block(begins))); err != nil {
			t.Errorf("the policy: %v", err)
		}
	}
	if _, err := exec.LookPath("curl"); err != nil {
		testenv.Missing(t, "curl")
	}
	srv := server.New(mem.New(nil), &server.Options{Ledger: mem.NewLedger(nil)})
	front := httptest.NewServer(srv)
	t.Cleanup(func() {
		srv.Drain()
		front.Close()
	})
	const given = "http://127.0.0.1:7117"
	run := func(script string, wants ...string) {
		t.Helper()
		script = strings.Replace(script, given, front.URL, 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for i, want := range wants {
			if i >= len(lines) || !strings.Contains(lines[i], want) {
				t.Errorf("call %d: want %s in\n%s", i, want, out)
			}
		}
	}
	run(block("server="+given+"\nsecret="), `"stamp":"croft1:`, `"state":"held"`, `"progress":"half"`, `"ended":"released"`,
		`"history":[{`, `"key":"reports/daily"`)
	run(block("server="+given+"\nrandom"), `"state":"waiting"`, `"items":[{`, `"state":"done"`, `"state":"done"`)
}

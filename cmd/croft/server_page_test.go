package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/guard"
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
	folder := t.TempDir()
	uploads, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = uploads.Close() })
	files := func(_ context.Context, path string) (guard.Artifact, error) {
		return file.Open(filepath.Join(folder, path), nil)
	}
	srv := server.New(mem.New(nil), &server.Options{Ledger: mem.NewLedger(nil), Files: files, Uploads: uploads})
	front := httptest.NewServer(srv)
	t.Cleanup(func() {
		srv.Drain()
		front.Close()
	})
	work, big := t.TempDir(), strings.Repeat("line\n", 1000)
	if err := os.WriteFile(filepath.Join(work, "big"), []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	const given = "http://127.0.0.1:7117"
	run := func(script string, wants ...string) {
		t.Helper()
		script = strings.Replace(script, given, front.URL, 1)
		c := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script)
		c.Dir = work
		out, err := c.CombinedOutput()
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
	run(block("server="+given+"\nrandom() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'; }\npost"), `"state":"waiting"`, `"items":[{`, `"state":"done"`, `"state":"done"`)
	if runtime.GOOS == "windows" {
		return // files are guarded on Unix alone
	}
	run(block("server="+given+"\nrandom() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'; }\ncall"), `"arrived":1000`,
		`"bytes":5000`)
	if content, err := os.ReadFile(filepath.Join(folder, "big")); string(content) != big {
		t.Errorf("the file has %d bytes, %v", len(content), err)
	}
}

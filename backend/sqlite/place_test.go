package sqlite

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// memoryDir returns a folder where a sync costs nothing, if there is one. It is
// for tests that are not about the disk.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	within := testenv.InMemory()
	if within == "" {
		return tb.TempDir()
	}
	dir, err := os.MkdirTemp(within, "") //nolint:usetesting // it knows nothing of memory
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// query reads a value from a file behind the store's back.
func query(tb testing.TB, file, text string, into ...any) {
	tb.Helper()
	db, err := connections(file, 10*time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(tb.Context(), text).Scan(into...); err != nil {
		tb.Fatal(err)
	}
}

func level(findings []store.Finding, check string) store.Level {
	for _, f := range findings {
		if f.Check == check {
			return f.Level
		}
	}
	return ""
}

func stampOf(token fence.Token) fence.Stamp {
	return fence.Stamp{Key: "jobs/report", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", token))}
}

// inOrder checks that the file is whole.
func inOrder(tb testing.TB, file string) {
	tb.Helper()
	var verdict string
	if query(tb, file, "PRAGMA integrity_check", &verdict); verdict != "ok" {
		tb.Fatalf("integrity_check: %s", verdict)
	}
}

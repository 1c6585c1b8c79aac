package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/croft-dev/croft/cmd/croft/internal/backends"
)

// optionalBackends are the backends that a build tag can leave out.
var optionalBackends = []string{"etcd", "gcs", "postgres", "redis", "s3", "sqlite"}

// A tag must leave out the backend with its client library, and nothing else.
func TestATagPerBackendLeavesItOut(t *testing.T) {
	t.Parallel()
	if in := backends.In(); len(in) != len(optionalBackends)+3 { // and dir, file and remote
		t.Errorf("croft has %q: give each new backend a tag", in)
	}
	client := map[string]string{
		"etcd": "go.etcd.io/etcd/client/v3", "gcs": "cloud.google.com/go/auth", "postgres": "github.com/jackc/pgx/v5",
		"redis": "github.com/redis/go-redis/v9", "s3": "github.com/aws/aws-sdk-go-v2/aws", "sqlite": "modernc.org/sqlite",
	}
	for _, name := range optionalBackends {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags=croft_no_"+name, ".").CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		packages := strings.Fields(string(out))
		for _, other := range optionalBackends {
			backend := "github.com/croft-dev/croft/backend/" + other
			if got, want := slices.Contains(packages, backend), other != name; got != want {
				t.Errorf("croft_no_%s: %s is in: %v, want %v", name, backend, got, want)
			}
			if got, want := slices.Contains(packages, client[other]), other != name; got != want {
				t.Errorf("croft_no_%s: %s is in: %v, want %v", name, client[other], got, want)
			}
		}
	}
}

// A user of a croft without a backend must learn from its error how to get it.
func TestACroftWithoutABackendSaysSo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds croft")
	}
	t.Parallel()
	small := filepath.Join(t.TempDir(), "croft.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-race=false", "-trimpath", "-ldflags=-s -w",
		"-tags=croft_no_"+strings.Join(optionalBackends, ",croft_no_"), "-o", small, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	out, err := exec.CommandContext(t.Context(), small, "version", "--json").Output()
	var v versionView
	if err != nil || json.Unmarshal(out, &v) != nil {
		t.Fatalf("croft version: %v\n%s", err, out)
	}
	if !slices.Equal(v.Backends, []string{"dir", "file", "remote"}) || !slices.Equal(v.LeftOut, optionalBackends) {
		t.Errorf("croft version says that %q are in and %q are left out", v.Backends, v.LeftOut)
	}
	out, err = exec.CommandContext(t.Context(), small, "version").Output()
	if want := "left out " + strings.Join(optionalBackends, ", ") + "\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("croft version: %v\n%s\nwant %q", err, out, want)
	}

	for name, args := range map[string][]string{
		"etcd":     {"--store", "etcds://h/p", "ls"},
		"gcs":      {"--store", "gs://b/p", "ls"},
		"redis":    {"--store", "redis:h", "ls"}, // without its slashes
		"s3":       {"guard", "show", "s3://b/k"},
		"postgres": {"--store", "postgresql://h/db", "work", "ls"},
		"sqlite":   {"schema", "sqlite"},
	} {
		cmd := exec.CommandContext(t.Context(), small, args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 ||
			!strings.Contains(string(out), "built without "+name+": ") || !strings.Contains(string(out), "croft_no_"+name) {
			t.Errorf("croft %q: exit code %d, said %s", args, code, out)
		}
	}
}

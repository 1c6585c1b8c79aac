package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAStoresPasswordGoesToThatStoreAlone: the file beside a lease gives its
// password to the URL it was taken from, and to no other.
func TestAStoresPasswordGoesToThatStoreAlone(t *testing.T) {
	const whole, bare = "redis://ann:hunter22@db:6379/0", "redis://ann@db:6379/0"
	file := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(file, []byte(whole+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envStoreFile, file)
	t.Setenv(EnvStore, bare)
	for name, want := range map[string]string{
		bare:                             whole,
		bare + "#report":                 whole + "#report",
		whole:                            whole,
		"redis://ann:other222@db:6379/0": "redis://ann:other222@db:6379/0",
		"redis://ann@db:6379/1":          "redis://ann@db:6379/1",
		"redis://ann@other:6379/0":       "redis://ann@other:6379/0",
		"redis://bob@db:6379/0":          "redis://bob@db:6379/0",
		"redis://db:6379/0#ann@db":       "redis://db:6379/0#ann@db",
		"rediss://ann@db:6379/0":         "rediss://ann@db:6379/0",
		bare + "?wait=1":                 bare + "?wait=1",
		"":                               "",
		"/var/lib/croft":                 "/var/lib/croft",
	} {
		if got, err := WithPassword(name); got != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", name, got, err, want)
		}
	}
	a := &App{}
	if said := a.Redact("the server does not like hunter22"); strings.Contains(said, "hunter22") {
		t.Errorf("croft says %q", said)
	}
}

// TestALostFileOfTheStoreIsSaid: only the store of that file needs it.
func TestALostFileOfTheStoreIsSaid(t *testing.T) {
	empty, long := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "long")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(long, make([]byte, maxStore+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	const bare = "postgres://ann@db/app"
	t.Setenv(EnvStore, bare)
	for _, file := range []string{empty, long, filepath.Join(t.TempDir(), "gone"), t.TempDir()} {
		t.Setenv(envStoreFile, file)
		got, err := WithPassword(bare)
		if err == nil || OutcomeOf(err).Exit != exitUsage || !strings.Contains(err.Error(), "--pass-store") {
			t.Errorf("%s: %q, %v; want a usage error that names --pass-store", file, got, err)
		}
		if got, err := WithPassword(bare + "#row"); err == nil || !strings.Contains(err.Error(), "--pass-store") {
			t.Errorf("%s: a target became %q, %v; want an error that names --pass-store", file, got, err)
		}
		for _, other := range []string{"postgres://ann@other/app", "postgres://ann:hunter22@db/app", "/var/lib/croft"} {
			if got, err := WithPassword(other); got != other || err != nil {
				t.Errorf("%s: %q became %q, %v", file, other, got, err)
			}
		}
	}
	t.Setenv(envStoreFile, "")
	if got, err := WithPassword(bare); got != bare || err != nil {
		t.Errorf("without a file %q became %q, %v", bare, got, err)
	}
}

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/croft-dev/croft/internal/testenv"
)

// The same scripts on every engine beside the default one: what users script against does not depend on where leases are kept.
func TestServerScripts(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return testenv.RedisAlone(t).URL() },
		"postgres": func(t *testing.T) string { return testenv.Postgres(t).Database(t) },
		"etcd":     func(t *testing.T) string { return testenv.Etcd(t).URL() },
		"sqlite":   func(t *testing.T) string { return "sqlite://" + t.TempDir() + "/croft.db" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := open(t)
			for _, folder := range []string{"servers", name} {
				testscript.Run(t, scripts(folder, func(e *testscript.Env) {
					e.Setenv("CROFT_STORE", url)
					e.Setenv("TARGET", url+"#report") // a script would take # for a comment
				}))
			}
		})
	}
}

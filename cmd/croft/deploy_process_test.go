//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/remote"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// readOnly runs a command with a file system that is read-only but for one
// folder, as ProtectSystem=strict makes it.
const readOnly = `#!/bin/sh
set -eu
if [ "$1" != inside ]; then exec unshare -rm "$0" inside "$@"; fi
state=STATE
shift
mount --make-rprivate /
mount --bind "$state" "$state"
awk '{print $5}' /proc/self/mountinfo | sort -u | while read -r m; do
	case $m in "$state" | /proc | /proc/* | /sys | /sys/*) ;; *) mount -o remount,bind,ro "$m" || true ;; esac
done
if touch "$(dirname "$state")/probe" 2>/dev/null; then echo "the file system is not read-only" >&2; exit 99; fi
cd /
exec "$0-writable" "$@"
`

// TestTheHardenedServerServes: the command line of its unit, what serve-setup
// has made, and a file system that is read-only but for the state.
func TestTheHardenedServerServes(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	testenv.Program(t, "openssl", "openssl")
	etc, state := filepath.Join(s.dir, "etc"), filepath.Join(s.dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "files", "build"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "../../deploy/serve-setup", etc, "127.0.0.1", "croft.example").CombinedOutput(); err != nil {
		t.Fatalf("serve-setup: %v\n%s", err, out)
	}
	unit, err := os.ReadFile("../../deploy/systemd/croft-serve-hardened.service")
	if err != nil {
		t.Fatal(err)
	}
	line := execStart.FindStringSubmatch(string(unit))
	if line == nil {
		t.Fatal("the unit has no command line")
	}
	args := shellWords(strings.NewReplacer("\\\n", " ", "${CROFT_SERVE_LISTEN}", "127.0.0.1:0", "$CROFT_SERVE_FLAGS", "--json",
		"127.0.0.1:9117", filepath.Join(state, "croft.prom"), "/etc/croft/serve", etc, "/var/lib/croft-serve", state).Replace(line[1]))
	s.env = append(s.env, "CROFT_STORE=sqlite://"+filepath.Join(state, "leases.db"))
	if exec.CommandContext(t.Context(), "unshare", "-rm", "true").Run() == nil {
		croft := filepath.Join(s.dir, "bin", "croft")
		if err := os.Rename(croft, croft+"-writable"); err != nil {
			t.Fatal(err)
		}
		testenv.WriteProgram(t, croft, []byte(strings.ReplaceAll(readOnly, "STATE", state)), 0o700)
	} else {
		t.Log("the file system is not read-only, because this user may make no namespaces")
	}
	_, address := s.listening("hardened", args...)

	open := func(query string) *remote.Store {
		t.Helper()
		st, err := store.Open(t.Context(), "https://"+address+"/?"+query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st.(*remote.Store)
	}
	acquire := func(st store.Store, key string) store.Answer {
		return st.Apply(t.Context(), []tenure.Request{{
			Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: "somebody", TTL: time.Minute,
		}})[0]
	}
	trust := "ca=" + etc + "/ca.pem"
	builder := open(trust + "&cert=" + etc + "/client.pem&key=" + etc + "/client.key")
	a := acquire(builder, "build/nightly")
	if a.Err != nil || a.Record.Owner != "builder" || a.Signature == "" {
		t.Fatalf("the client of serve-setup: %+v", a)
	}
	if a := acquire(builder, "deploy/x"); !store.IsFault(a.Err) {
		t.Errorf("a key that the policy does not allow: %v", a.Err)
	}
	if a := acquire(open(trust), "build/other"); !store.IsFault(a.Err) {
		t.Errorf("a client without a certificate: %v", a.Err)
	}
	stamp := a.Record.Stamp()
	write := func(path string, s fence.Stamp) error {
		f, err := builder.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(t.Context(), s, strings.NewReader(strings.Repeat("content\n", 300_000)))
		return err
	}
	if err := write("build/out", stamp); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an unsigned stamp: %v", err)
	}
	stamp.Signature = a.Signature
	if err := write("build/out", stamp); err != nil {
		t.Errorf("a signed stamp: %v", err)
	}
	if err := write("elsewhere", stamp); err == nil || guard.Refused(err) {
		t.Errorf("a file that the policy does not allow: %v", err)
	}
	if content, err := os.ReadFile(filepath.Join(state, "files", "build", "out")); err != nil || len(content) != 2_400_000 {
		t.Errorf("the file has %d bytes, %v", len(content), err)
	}
	authority, err := os.ReadFile(filepath.Join(etc, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	old := &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if conn, err := tls.Dial("tcp", address, old); err == nil {
		_ = conn.Close()
		t.Error("the server speaks TLS 1.1")
	}
	if resp, err := http.Get("http://" + address + "/v1/leases"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("the server answers without TLS")
		}
	}
}

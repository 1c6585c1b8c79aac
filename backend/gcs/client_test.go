package gcs

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestCredentialsThatAreMissing: the error says so, and what to do.
func TestCredentialsThatAreMissing(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	_, err := Open(t.Context(), "bucket", "croft", nil)
	if err == nil || !strings.Contains(err.Error(), "no credentials were found") || !strings.Contains(err.Error(), "gcloud auth") {
		t.Errorf("Open: %v", err)
	}
}

// TestTheEnvironmentNamesAnEmulator: as for Google's own clients. The caller's
// endpoint comes first.
func TestTheEnvironmentNamesAnEmulator(t *testing.T) {
	for _, c := range []struct{ env, asked, want string }{
		{"", "", google},
		{"localhost:4443", "", "http://localhost:4443"},
		{"https://localhost:4443/", "", "https://localhost:4443"},
		{"localhost:4443", "http://other:1/storage/v1/", "http://other:1"},
	} {
		t.Setenv("STORAGE_EMULATOR_HOST", c.env)
		if got, err := endpointOf(c.asked); got != c.want || err != nil {
			t.Errorf("%q in the environment, %q asked for: %q, %v; want %q", c.env, c.asked, got, err, c.want)
		}
	}
	for _, bad := range []string{"ftp://x", "http://", "://", "http://host:80/behind/a/path", "http://ann:secret@host", "http://host?x=1"} {
		if _, err := endpointOf(bad); !errors.Is(err, fence.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
	server := testenv.GCS(t)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.Endpoint, "http://"))
	st := open(t, server.Bucket(t), nil)
	defer st.Close()
	if a := one(t.Context(), st, acquire("env/emulator", "ann")); a.Err != nil {
		t.Error(a.Err)
	}
}

type token string

func (s token) Token(context.Context) (*auth.Token, error) {
	return &auth.Token{Value: string(s), Type: "Bearer"}, nil
}

func TestCredentialsOfTheProgramGoWithEveryRequest(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	way := newProxy(t, server.Endpoint)
	var with, without atomic.Int64
	way.on(func(r *http.Request) *fault {
		if r.Header.Get("Authorization") == "Bearer hunter2" {
			with.Add(1)
		} else {
			without.Add(1)
		}
		return nil
	})
	creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: token("hunter2")})
	st := open(t, server.Bucket(t), &Options{Connection: Connection{Endpoint: way.URL, Credentials: creds}})
	defer st.Close()
	if a := one(t.Context(), st, acquire("creds/own", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	if with.Load() == 0 || without.Load() > 0 {
		t.Errorf("%d requests with the credentials, %d without", with.Load(), without.Load())
	}
}

type noToken struct{}

func (noToken) Token(context.Context) (*auth.Token, error) {
	return nil, &auth.Error{Response: &http.Response{StatusCode: http.StatusBadRequest}, Body: []byte(`{"error": "invalid_grant"}`)}
}

// TestCredentialsThatGiveNoToken: the error does not blame the network.
func TestCredentialsThatGiveNoToken(t *testing.T) {
	t.Parallel()
	creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: noToken{}})
	_, err := Open(t.Context(), "bucket", "croft", &Options{Connection: Connection{Endpoint: "http://127.0.0.1:1", Credentials: creds}})
	if err == nil || !strings.Contains(err.Error(), "invalid_grant") || !strings.Contains(err.Error(), "renew them") || strings.Contains(err.Error(), "network") {
		t.Errorf("Open: %v", err)
	}
}

type elsewhere struct{ hosts chan string }

func (e elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	e.hosts <- req.URL.Scheme + "://" + req.URL.Host
	return nil, context.Canceled
}

// TestTheEndpointAskedForIsWhereRequestsGo: also if it is Google's own, and
// whatever the environment says.
func TestTheEndpointAskedForIsWhereRequestsGo(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	for _, endpoint := range []string{google, "https://private.example"} {
		way := elsewhere{make(chan string, 10)}
		creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: token("hunter2")})
		b, err := dial(t.Context(), "bucket", &Connection{Endpoint: endpoint, Credentials: creds, Transport: way})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.getOnce(t.Context(), "x")
		_, _ = b.putOnce(t.Context(), "x", 0, nonce(), "")
		if b.limit() != time.Second {
			t.Errorf("writes to %s come every %s", endpoint, b.limit())
		}
		for _, what := range []string{"read", "write"} {
			if host := <-way.hosts; host != endpoint {
				t.Errorf("a %s for %s goes to %s", what, endpoint, host)
			}
		}
	}
}

// TestNamesOfBucketsHaveGooglesLimits: 63 characters, or 222 with dots and at
// most 63 between two of them.
func TestNamesOfBucketsHaveGooglesLimits(t *testing.T) {
	part := strings.Repeat("a", 63)
	for name, good := range map[string]bool{
		"abc": true, "my_bucket-1": true, part: true, part + ".b": true,
		part + "." + part + "." + part + "." + part[:30]: true, // 222
		"ab": false, part + "a": false, part + "a.b": false, "b." + part + "a": false,
		part + "." + part + "." + part + "." + part[:31]: false, "My-Bucket": false, "a b c": false,
	} {
		if err := checkBucket(name); good != (err == nil) || !good && !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q of %d characters: %v", name, len(name), err)
		}
	}
}

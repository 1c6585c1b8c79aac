package gcs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// level finds the level of one check.
func level(t *testing.T, findings []store.Finding, check string) store.Level {
	t.Helper()
	for _, f := range findings {
		if f.Check == check {
			if (f.Level == store.OK) != (f.Advice == "") || f.Seen == "" {
				t.Errorf("%+v: a finding says what was seen, and what to do if it is not good", f)
			}
			return f.Level
		}
	}
	t.Errorf("nothing is said about %s", check)
	return ""
}

// TestDoctor: the findings about a good bucket, a bad endpoint, and a bucket
// whose settings are hidden.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := testenv.GCSExact(t)
	name := server.Bucket(t)
	st := open(t, name, &Options{Connection: at(server.Endpoint)})
	defer st.Close()
	findings, err := st.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Level != store.OK {
			t.Errorf("of a bucket without flaws: %+v", f)
		}
	}
	for _, check := range []string{"tier", "conditions", "deletes", "credentials", "clock", "versioning", "soft delete", "retention", "storage class", "lifecycle"} {
		level(t, findings, check)
	}

	plain := testenv.GCS(t)
	ignorant := open(t, plain.Bucket(t), &Options{Connection: at(plain.Endpoint)})
	defer ignorant.Close()
	if findings, err = ignorant.Examine(t.Context()); err != nil || level(t, findings, "deletes") != store.Warn || level(t, findings, "tier") != store.OK {
		t.Errorf("of an endpoint whose deletes heed no condition: %+v, %v", findings, err)
	}

	way := newProxy(t, server.Endpoint)
	bad := open(t, name, &Options{Connection: at(way.URL), SkipProbe: true})
	defer bad.Close()
	way.on(func(r *http.Request) *fault {
		query := r.URL.Query()
		query.Del("ifGenerationMatch")
		r.URL.RawQuery = query.Encode()
		return nil
	})
	if findings, err = bad.Examine(t.Context()); err != nil || level(t, findings, "conditions") != store.Bad || level(t, findings, "tier") != store.Bad {
		t.Errorf("of an endpoint that heeds no condition: %+v, %v", findings, err)
	}
	settings := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == "/storage/v1/b/"+name }
	way.shift = time.Hour
	way.on(func(r *http.Request) *fault {
		if settings(r) {
			return &fault{status: http.StatusForbidden}
		}
		return &fault{}
	})
	findings, err = bad.Examine(t.Context())
	if err != nil || level(t, findings, "bucket") != store.Warn || level(t, findings, "clock") != store.Warn {
		t.Errorf("of a bucket whose settings are hidden, an hour ahead: %+v, %v", findings, err)
	}
	way.on(func(r *http.Request) *fault {
		if settings(r) {
			return &fault{status: http.StatusOK, body: `{"kind": "storage#bucket", "name": "x", "versioning": {"enabled": true}, "softDeletePolicy": {"retentionDurationSeconds": "604800"},
				"retentionPolicy": {"retentionPeriod": "3600", "effectiveTime": "2026-01-01T00:00:00Z"}, "storageClass": "COLDLINE", "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 0}}]}}`}
		}
		return nil
	})
	findings, err = bad.Examine(t.Context())
	for check, want := range map[string]store.Level{"versioning": store.Warn, "soft delete": store.Warn, "retention": store.Bad, "storage class": store.Warn, "lifecycle": store.Bad} {
		if got := level(t, findings, check); got != want {
			t.Errorf("%s of a bucket with every flaw: %s, want %s (%v)", check, got, want, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Examine(ended); err == nil {
		t.Error("under an ended context it knows everything")
	}
}

// TestLifecycleRules: Examine finds the rules that delete records or make them
// expensive.
func TestLifecycleRules(t *testing.T) {
	t.Parallel()
	const everything = `"age": 0`
	date := func(d time.Duration) string {
		return `"createdBefore": "` + time.Now().Add(d).Format(time.DateOnly) + `"`
	}
	for _, c := range []struct {
		name, action, condition string
		want                    store.Level
	}{
		{"everything", "Delete", everything, store.Bad},
		{"after a day", "Delete", `"age": 1`, store.Warn},
		{"after the longest lease", "Delete", `"age": 30`, store.OK},
		{"old versions", "Delete", `"isLive": false`, store.OK},
		{"live versions", "Delete", `"isLive": true`, store.Bad},
		{"all but the newest version", "Delete", `"numNewerVersions": 1`, store.OK},
		{"a custom time", "Delete", `"daysSinceCustomTime": 1`, store.OK},
		{"those of the past", "Delete", date(-1000 * time.Hour), store.OK},
		{"those until a day to come", "Delete", date(1000 * time.Hour), store.Bad},
		{"another prefix", "Delete", everything + `, "matchesPrefix": ["logs/"]`, store.OK},
		{"a prefix above", "Delete", everything + `, "matchesPrefix": ["logs/", "team/"]`, store.Bad},
		{"a prefix below", "Delete", everything + `, "matchesPrefix": ["team/croft/leases/3f"]`, store.Bad},
		{"uploads that were left", "Delete", `"age": 1, "matchesSuffix": ["` + besideSuffix + `"]`, store.OK},
		{"json", "Delete", everything + `, "matchesSuffix": [".json"]`, store.Bad},
		{"another class", "Delete", everything + `, "matchesStorageClass": ["ARCHIVE"]`, store.OK},
		{"to a colder class", "SetStorageClass", `"age": 30`, store.Warn},
		{"uploads in parts", "AbortIncompleteMultipartUpload", `"age": 1`, store.OK},
	} {
		rule := &storage.BucketLifecycleRule{}
		// As the service sends it.
		text := fmt.Sprintf(`{"action": {"type": %q}, "condition": {%s}}`, c.action, c.condition)
		if err := json.Unmarshal([]byte(text), rule); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := examineLifecycle([]*storage.BucketLifecycleRule{rule}, "team/croft/leases/"); got.Level != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Level, got.Seen, c.want)
		}
	}
}

// TestCredentialsAreNamed: the description shows whose they are and where they
// come from, and no secret.
func TestCredentialsAreNamed(t *testing.T) {
	for _, c := range []struct{ json, says string }{
		{`{"type": "service_account", "client_email": "worker@p.iam.gserviceaccount.com", "private_key": "hunter2"}`, "service account worker@p.iam.gserviceaccount.com"},
		{`{"type": "external_account", "service_account_impersonation_url": "https://x/v1/projects/-/serviceAccounts/ci@p.iam.gserviceaccount.com:generateAccessToken"}`, "as ci@p.iam.gserviceaccount.com"},
		{``, "metadata server"},
	} {
		says := describe(auth.NewCredentials(&auth.CredentialsOptions{JSON: []byte(c.json)}))
		if !strings.Contains(says, c.says) || strings.Contains(says, "hunter2") {
			t.Errorf("%s: %q, want %q", c.json, says, c.says)
		}
	}
}

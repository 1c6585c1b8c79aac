package registry_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/registry"
)

// TestRedactHidesSecretsAndNothingElse: the result is the URL as written,
// without its secrets.
func TestRedactHidesSecretsAndNothingElse(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                 "",
		"/var/lib/croft":                   "/var/lib/croft",
		"./a b@c":                          "./a b@c",
		"/odd/a://u:pw@h":                  "/odd/a://u:pw@h",
		"dir:///var/lib/croft":             "dir:///var/lib/croft",
		"s3://bucket/bob@example.org/file": "s3://bucket/bob@example.org/file",
		"redis://h:6379/0":                 "redis://h:6379/0",
		"redis://bob@h:6379/0":             "redis://bob@h:6379/0",
		"redis://bob:hunter2@h:6379/0#key": "redis://bob:xxxxx@h:6379/0#key",
		"redis://:hunter2@h":               "redis://:xxxxx@h",
		"redis://bob:@h":                   "redis://bob:xxxxx@h",
		"redis://bob:hun%40ter2@h":         "redis://bob:xxxxx@h",
		"pg://h:5432/db?user=bob@corp":     "pg://h:5432/db?user=bob@corp",

		// In the query, which keeps its order.
		"pg://h/db?z=1&password=hunter2&a=2":          "pg://h/db?z=1&password=xxxxx&a=2",
		"pg://h/db?PassWord=hunter2":                  "pg://h/db?PassWord=xxxxx",
		"pg://h/db?pass%77ord=hunter2":                "pg://h/db?pass%77ord=xxxxx",
		"pg://h/db?password=hunter2&password=hunter2": "pg://h/db?password=xxxxx&password=xxxxx",
		"pg://h/db?password=hunter2#table":            "pg://h/db?password=xxxxx#table",
		"pg://h/db?password":                          "pg://h/db?password",
		"pg://h/db?sslmode=off":                       "pg://h/db?sslmode=off",
		"s3://b/k?X-Amz-Signature=hunter2":            "s3://b/k?X-Amz-Signature=xxxxx",
		"s3://b/k?aws_secret_access_key=hunter2":      "s3://b/k?aws_secret_access_key=xxxxx",
		"s3://b/k?session_token=hunter2&region=eu":    "s3://b/k?session_token=xxxxx&region=eu",
		"s3://b/k?pwd=hunter2":                        "s3://b/k?pwd=xxxxx",
		"s3://b/k?authorization=hunter2":              "s3://b/k?authorization=xxxxx",
		"s3://b/k?credentials=hunter2":                "s3://b/k?credentials=xxxxx",
		"s3://b/k?apikey=hunter2":                     "s3://b/k?apikey=xxxxx",

		// Queries with a semicolon, which Go's parser drops.
		"pg://h/db?password=hun;ter2&a=2": "pg://h/db?password=xxxxx&a=2",
		"pg://h/db?a=2;password=hunter2":  "pg://h/db?a=2;password=xxxxx",

		// Passwords that should have been percent-encoded. Some of these cannot
		// be parsed, others parse as something else.
		"redis://bob:hun/ter2@h":                "redis://xxxxx@h",
		"redis://bob:hun#ter2@h":                "redis://xxxxx@h",
		"redis://bob:hun?ter2@h":                "redis://xxxxx@h",
		"redis://bob:hun@ter2@h":                "redis://bob:xxxxx@h",
		"redis://bob:hun%ter2@h":                "redis://xxxxx@h",
		"redis://bob:hun ter2@h":                "redis://xxxxx@h",
		"redis://:1/hunter2@h":                  "redis://xxxxx@h",
		"redis://:1?hun=ter2@h":                 "redis://xxxxx@h",
		"redis://bob:1/hunter2@h":               "redis://xxxxx@h",
		"redis://bob:1#hunter2@h":               "redis://xxxxx@h",
		"redis://bob:1?hunter2@h":               "redis://xxxxx@h",
		"redis://bob:hun\x00ter2@h":             "redis://xxxxx@h",
		"redis://[::1:hunter2@h":                "redis://xxxxx@h",
		"redis://bob:hunter2@h:port":            "redis://xxxxx@h:port",
		"redis://h:port/?password=hunter2":      "redis://h:port/?password=xxxxx",
		"redis://h/%zz?password=hunter2&a=2":    "redis://h/%zz?password=xxxxx&a=2",
		"redis://h/\x7f?a=2;secret=hunter2":     "redis://h/\x7f?a=2;secret=xxxxx",
		"://bob:hunter2@h?token=hunter2":        "://xxxxx@h?token=xxxxx",
		"redis://bob:hun%zz@h/?password=hunter": "redis://xxxxx@h/?password=xxxxx",
	} {
		got := registry.Redact(raw)
		if got != want {
			t.Errorf("%q is shown as\n\t%q, want\n\t%q", raw, got, want)
		}
		if again := registry.Redact(got); again != got {
			t.Errorf("%q: redacted once it is %q, twice %q", raw, got, again)
		}
	}
}

// FuzzRedactHidesPasswords: a password that is percent-encoded never shows,
// whatever is around it.
func FuzzRedactHidesPasswords(f *testing.F) {
	f.Add("redis", "bob", "h:6379", "/0", "a=2")
	f.Add("pg", "", "[::1]", "/a@b", "user=bob@corp;x")
	f.Add("x", "a:b", "", "", "")
	f.Fuzz(func(t *testing.T, scheme, user, host, path, query string) {
		const password = "hunter2@/?#:hunter2"
		if strings.Contains(scheme, "/") || strings.ContainsAny(host, "@/?#") {
			return // these parts make no URL
		}
		raw := scheme + "://" + url.UserPassword(user, password).String() + "@" + host
		if path != "" {
			raw += "/" + path
		}
		raw += "?" + query + "&password=" + url.QueryEscape(password)
		if strings.Contains(scheme+user+host+path+query, "hunter2") || strings.ContainsAny(path+query, "?#") {
			return
		}
		if shown := registry.Redact(raw); strings.Contains(shown, "hunter2") {
			t.Errorf("%q is shown as %q", raw, shown)
		}
	})
}

package registry_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/registry"
)

// TestBareTakesSecretsAndNothingElse: a program can still tell from the result
// which store it is.
func TestBareTakesSecretsAndNothingElse(t *testing.T) {
	for raw, want := range map[string]string{
		// The password of a user. The name stays.
		"redis://bob:hunter2@h:6379/0#key":                  "redis://bob@h:6379/0#key",
		"redis://:hunter2@h":                                "redis://h",
		"rediss://:hunter2@[::1]:6379/0?wait=1":             "rediss://[::1]:6379/0?wait=1",
		"redis://bob:hun%40ter2@h":                          "redis://bob@h",
		"redis://bob:hun:ter2@h":                            "redis://bob@h",
		"etcds://bob:hunter2@h1:2379,h2:2379/p":             "etcds://bob@h1:2379,h2:2379/p",
		"postgres://bob:hunter2@h1,h2/db?sslmode=disable":   "postgres://bob@h1,h2/db?sslmode=disable",
		"postgres://bob:hunter2@/db?host=%2Frun%2Fpg&a=%zz": "postgres://bob@/db?host=%2Frun%2Fpg&a=%zz",

		// In the query. The rest keeps its order.
		"pg://h/db?z=1&password=hunter2&a=2":               "pg://h/db?z=1&a=2",
		"pg://bob:hunter2@h/db?sslpassword=hunter2#row":    "pg://bob@h/db#row",
		"pg://h/db?pass%77ord=hunter2&PassWord=hunter2":    "pg://h/db",
		"pg://h/db?a=2;password=hunter2&b=3":               "pg://h/db?b=3",
		"pg://h/db?password=;hunter2&b=3":                  "pg://h/db?b=3",
		"s3://b/k?aws_secret_access_key=hunter2&region=eu": "s3://b/k?region=eu",
		"s3://b/k?session_token=hunter2":                   "s3://b/k",
		"s3://b/k?access_key=hunter2":                      "s3://b/k",

		// A password that should have been percent-encoded.
		"redis://bob:hun%zzter2@h": "redis://xxxxx@h",
	} {
		got := registry.Bare(raw)
		if got != want {
			t.Errorf("%q became\n\t%q, want\n\t%q", raw, got, want)
		}
		if again := registry.Bare(got); again != got {
			t.Errorf("%q: once it becomes %q, twice %q", raw, got, again)
		}
	}
	for _, same := range []string{
		"", "/var/lib/croft", "./a b@c:d", "/odd/a://u:pw@h", "dir:///var/lib/croft", "sqlite:///a/b.db?x=1",
		"redis://h:6379/0", "redis://bob@h:6379/0", "redis://bob:@h",
		"s3://bucket/bob:x@example.org/file", "pg://h:5432/db?user=bob:b@corp",
		"postgres://bob@h/db?sslmode=verify-full&sslkey=/etc/key.pem&passfile=/etc/pass&require_auth=scram-sha-256",
		"etcds://h/?cert=c.pem&key=k.pem", "pg://h/db?", "pg://h/db?password", "pg://h/db?password=", "pg://h/db#",
	} {
		if got := registry.Bare(same); got != same {
			t.Errorf("%q has no secret and became %q", same, got)
		}
	}
}

// FuzzBareTakesPasswords: no password stays, whatever is around it. Bare finds
// nothing more in its own result, if that is a URL.
func FuzzBareTakesPasswords(f *testing.F) {
	f.Add("redis", "bob", "h:6379", "/0", "a=2")
	f.Add("pg", "", "[::1]", "/a@b", "user=bob@corp;x")
	f.Add("x", "a:b", "", "", "")
	f.Fuzz(func(t *testing.T, scheme, user, host, path, query string) {
		const password = "hunter2@/?#:hunter2"
		if strings.Contains(scheme, "/") || strings.ContainsAny(host, "@/?#") || strings.ContainsAny(path+query, "?#") ||
			strings.Contains(scheme+user+host+path+query, "hunter2") {
			return // these parts make no URL
		}
		raw := scheme + "://" + url.UserPassword(user, password).String() + "@" + host
		if path != "" {
			raw += "/" + path
		}
		raw += "?" + query + "&password=" + url.QueryEscape(password)
		bare := registry.Bare(raw)
		if strings.Contains(bare, "hunter2") {
			t.Errorf("%q became %q", raw, bare)
		}
		if _, err := url.Parse(raw); err != nil {
			return // the result is only for people to read
		}
		if again := registry.Bare(bare); again != bare {
			t.Errorf("%q: once it becomes %q, twice %q", raw, bare, again)
		}
	})
}

package registry

import (
	"net/url"
	"strings"
)

const hidden = "xxxxx"

// Redact returns a URL that people may see. It replaces the password, and query
// values whose name suggests a secret. Everything else stays as it was written.
// It works on the text, so it also works on a URL that cannot be parsed. A text
// that is not a URL stays the same.
func Redact(raw string) string {
	if !isURL(raw) {
		return raw
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	// A URL that cannot be parsed, or has no host, mostly has a password that
	// should have been percent-encoded. It is a guess where that ends: hide too
	// much rather than too little.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if u, err := url.Parse(raw); err != nil || (u.User == nil && u.Hostname() == "" && u.Host != "") {
			rest = hidden + rest[at:]
		}
	}
	end := len(rest)
	if q := strings.IndexByte(rest, '?'); q >= 0 &&
		(strings.Contains(rest[q:], "=") || !strings.Contains(rest[q:], "@")) {
		end = q
	}
	rest = redactUser(rest[:end]) + rest[end:]
	// The question mark may have gone with the password.
	if q := strings.IndexAny(rest, "?&"); q >= 0 {
		rest = rest[:q+1] + redactQuery(rest[q+1:])
	}
	return scheme + "://" + rest
}

// redactUser hides the password in the part between the scheme and the query.
func redactUser(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	authority := address
	if end := strings.IndexAny(address, "/?#"); end >= 0 {
		authority = address[:end]
	}
	if at < len(authority) {
		if user, _, hasPassword := strings.Cut(address[:at], ":"); hasPassword {
			return user + ":" + hidden + address[at:]
		}
		return address
	}
	if !strings.Contains(authority, ":") {
		return address // the "@" is part of a path
	}
	// Either "host:1" and a path with an "@", or a password "1/…" that should
	// have been percent-encoded.
	return hidden + address[at:]
}

// secretive has parts of names whose query values are secret.
var secretive = []string{"pass", "pwd", "secret", "token", "key", "cred", "auth", "sig"}

func redactQuery(query string) string {
	query, fragment, hasFragment := strings.Cut(query, "#")
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		// A semicolon was once a separator, and may still be meant as one. So
		// hide everything from the first secret to the next "&".
		start := 0
		for part := range strings.SplitSeq(pair, ";") {
			if name, _, ok := strings.Cut(part, "="); ok && speaksOfSecret(name) {
				pairs[i] = pair[:start+len(name)] + "=" + hidden
				break
			}
			start += len(part) + 1
		}
	}
	query = strings.Join(pairs, "&")
	if hasFragment {
		query += "#" + fragment
	}
	return query
}

func speaksOfSecret(name string) bool {
	name = plain(name)
	for _, word := range secretive {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// plain returns a query's name decoded and in lower case.
func plain(name string) string {
	if read, err := url.QueryUnescape(name); err == nil {
		name = read
	}
	return strings.ToLower(name)
}

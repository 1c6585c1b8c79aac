package registry

import (
	"net/url"
	"strings"
)

const hidden = "xxxxx"

// Redact is a URL fit for people's eyes: its password, and query values whose name speaks of a secret, are replaced; all else stays as it was
// written. It works on the text, so it also works on what cannot be parsed. What is not a URL stays as it is.
func Redact(raw string) string {
	if !isURL(raw) {
		return raw
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	// What has a host missing or cannot be parsed at all has mostly a password that should have been encoded. Where it ends is a guess: rather hide too much.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if u, err := url.Parse(raw); err != nil || (u.User == nil && u.Hostname() == "" && u.Host != "") {
			rest = hidden + rest[at:]
		}
	}
	end := len(rest)
	if q := strings.IndexByte(rest, '?'); q >= 0 && (strings.Contains(rest[q:], "=") || !strings.Contains(rest[q:], "@")) {
		end = q
	}
	rest = redactUser(rest[:end]) + rest[end:]
	if q := strings.IndexAny(rest, "?&"); q >= 0 { // the question mark may have gone with the password
		rest = rest[:q+1] + redactQuery(rest[q+1:])
	}
	return scheme + "://" + rest
}

// redactUser hides the password in what stands between the scheme and the query.
func redactUser(place string) string {
	at := strings.LastIndexByte(place, '@')
	if at < 0 {
		return place
	}
	authority := place
	if end := strings.IndexAny(place, "/?#"); end >= 0 {
		authority = place[:end]
	}
	if at < len(authority) {
		if user, _, hasPassword := strings.Cut(place[:at], ":"); hasPassword {
			return user + ":" + hidden + place[at:]
		}
		return place
	}
	if !strings.Contains(authority, ":") {
		return place // the "@" is part of a path
	}
	// Either "host:1" and a path with an "@", or the password "1/…" not encoded as it should be.
	return hidden + place[at:]
}

// secretive are parts of the names of query values that are nobody's business.
var secretive = []string{"pass", "pwd", "secret", "token", "key", "cred", "auth", "sig"}

func redactQuery(query string) string {
	query, fragment, hasFragment := strings.Cut(query, "#")
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		// A semicolon was once a separator and may still be meant as one: all from the first secret to the next "&" goes.
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

// plain is a name in a query as its reader sees it, in lower case.
func plain(name string) string {
	if read, err := url.QueryUnescape(name); err == nil {
		name = read
	}
	return strings.ToLower(name)
}

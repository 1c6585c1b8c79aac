package registry

import (
	"net/url"
	"strings"
)

// Bare returns a URL without its secrets: without the password, and without
// query values whose name suggests a secret. Everything else stays as it was
// written, so a URL without secrets stays the same. A path stays the same too.
//
// Redact is for people to read. Programs can use the result of Bare.
func Bare(raw string) string {
	if !isURL(raw) {
		return raw
	}
	if _, err := url.Parse(raw); err != nil {
		// It is a guess where its password ends.
		return Redact(raw)
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	address, query, hasQuery := strings.Cut(rest, "?")
	address = bareUser(address)
	if hasQuery {
		if kept := bareQuery(query); kept != "" || query == "" {
			address += "?" + kept
		}
	}
	if hasFragment {
		address += "#" + fragment
	}
	return scheme + "://" + address
}

// bareUser removes the password from the part between the scheme and the query.
func bareUser(address string) string {
	authority, path := address, ""
	if slash := strings.IndexByte(address, '/'); slash >= 0 {
		authority, path = address[:slash], address[slash:]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return address
	}
	user, password, _ := strings.Cut(authority[:at], ":")
	switch {
	case password == "":
		return address
	case user == "":
		return authority[at+1:] + path
	}
	return user + authority[at:] + path
}

func bareQuery(query string) string {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if !hasSecret(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// hasSecret reports whether a part of a query contains a secret. A semicolon
// may be meant as a separator, or as part of the value.
func hasSecret(pair string) bool {
	for more := true; more; {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && speaksOfSecret(name) && !innocent[plain(name)] {
			return true
		}
		_, pair, more = strings.Cut(pair, ";")
	}
	return false
}

// innocent has names that look like secrets although their values are files or
// settings.
var innocent = map[string]bool{"key": true, "sslkey": true, "passfile": true, "require_auth": true}

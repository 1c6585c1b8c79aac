package fence_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// odd are keys that look strange and are allowed.
var odd = []string{
	"k", "reports/daily", "a/b/c/d", "...", "a..b", ".a", "a.", ". ", " ", "a b", "-", "~", "*", "%", "%2F", "%zz", `back\slash`, `"quoted"`, "it's",
	"a:b", "croft1:1:2:3:4", "a?b#c", "a&b=c", "$(id)", "é", "e\u0301", "日本語/キー", "\u200b", "\u202e", "\ufeff", "\ufffd", "😀", "\u2028",
	strings.Repeat("x", fence.MaxKey), strings.Repeat("a/", fence.MaxKey/2-1) + "b", strings.Repeat("é", fence.MaxKey/2),
}

// TestCheckKeyAllowsWhatIsOdd: CheckKey refuses only keys that would confuse a
// path or a terminal.
func TestCheckKeyAllowsWhatIsOdd(t *testing.T) {
	for _, key := range odd {
		if err := fence.CheckKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestCheckKeySaysWhatIsWrong: the error names the fault, and the remedy where
// it is not obvious.
func TestCheckKeySaysWhatIsWrong(t *testing.T) {
	for key, want := range map[string]string{
		"":                                  `invalid key: it is empty; name the work, for example "reports/daily"`,
		strings.Repeat("x", fence.MaxKey+1): `invalid key: 513 bytes long, at most 512 are allowed; use a shorter name or a hash of it`,
		strings.Repeat("é", fence.MaxKey/2) + "x": `invalid key: 513 bytes long, at most 512 are allowed; use a shorter name or a hash of it`,
		"a\xff":        `invalid key "a\xff": it is not valid UTF-8`,
		"\xed\xa0\x80": `invalid key "\xed\xa0\x80": it is not valid UTF-8`,
		"a\nb":         `invalid key "a\nb": control character at byte 1`,
		"\x00":         `invalid key "\x00": control character at byte 0`,
		"ab\x7f":       `invalid key "ab\x7f": control character at byte 2`,
		"é\u0085":      `invalid key "é\u0085": control character at byte 2`,
		"/":            `invalid key "/": empty segment; remove the leading, trailing or doubled slash`,
		"/a":           `invalid key "/a": empty segment; remove the leading, trailing or doubled slash`,
		"a/":           `invalid key "a/": empty segment; remove the leading, trailing or doubled slash`,
		"a//b":         `invalid key "a//b": empty segment; remove the leading, trailing or doubled slash`,
		".":            `invalid key ".": a segment may not be "."`,
		"..":           `invalid key "..": a segment may not be ".."`,
		"../a":         `invalid key "../a": a segment may not be ".."`,
		"a/./b":        `invalid key "a/./b": a segment may not be "."`,
		"a/..":         `invalid key "a/..": a segment may not be ".."`,
	} {
		err := fence.CheckKey(key)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want it invalid", key, err)
			continue
		}
		if err.Error() != want {
			t.Errorf("%q:\n\t%v, want\n\t%s", key, err, want)
		}
	}
}

// TestNamespaceIsTheFirstSegment: a key of one segment has no namespace.
func TestNamespaceIsTheFirstSegment(t *testing.T) {
	for key, want := range map[string]string{"k": "", "a/b": "a", "a/b/c": "a", "é/x": "é", "": "", " /x": " "} {
		if got := fence.Namespace(key); got != want {
			t.Errorf("the namespace of %q is %q, want %q", key, got, want)
		}
	}
}

// TestEscapedKeysAreOnePrintableWord: and UnescapeKey returns the same bytes.
func TestEscapedKeysAreOnePrintableWord(t *testing.T) {
	for want, key := range map[string]string{
		"a-._~/Z9":    "a-._~/Z9",
		"a%20b":       "a b",
		"a%2Bb":       "a+b",
		"%25":         "%",
		"%2525":       "%25",
		"a%3Ab":       "a:b",
		"%C3%A9":      "é",
		"%00%0A%7F":   "\x00\n\x7f",
		"%FF":         "\xff",
		"":            "",
		"a%3Fb%23%26": "a?b#&",
	} {
		if got := fence.EscapeKey(key); got != want {
			t.Errorf("%q is escaped as %q, want %q", key, got, want)
		}
	}
	for c := range 256 {
		key := string([]byte{'a', byte(c), 'b'})
		word := fence.EscapeKey(key)
		if strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
			t.Errorf("%q is escaped as %q, which is not one printable word", key, word)
		}
		if back, err := fence.UnescapeKey(word); err != nil || back != key {
			t.Errorf("%q was read back as %q, %v", key, back, err)
		}
	}
	for _, bad := range []string{"%", "a%2", "%zz", "%-1"} {
		if got, err := fence.UnescapeKey(bad); !errors.Is(err, fence.ErrInvalid) || got != "" {
			t.Errorf("%q was read as %q, %v; want it invalid", bad, got, err)
		}
	}
}

// FuzzCheckKey compares CheckKey with a second statement of its rules.
func FuzzCheckKey(f *testing.F) {
	for _, key := range odd {
		f.Add(key)
	}
	for _, key := range []string{"", "/", "a//b", "..", "a/./b", "a\nb", "\xff", strings.Repeat("x", fence.MaxKey+1)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		good := key != "" && len(key) <= fence.MaxKey && utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
		wrapped := "/" + key + "/"
		for _, segment := range []string{"//", "/./", "/../"} {
			good = good && !strings.Contains(wrapped, segment)
		}
		err := fence.CheckKey(key)
		if good != (err == nil) {
			t.Errorf("%q: %v", key, err)
		}
		if err != nil && (!errors.Is(err, fence.ErrInvalid) || strings.ContainsFunc(err.Error(), unicode.IsControl)) {
			t.Errorf("%q: the error %q does not match ErrInvalid or breaks the line", key, err)
		}
		if back, err := fence.UnescapeKey(fence.EscapeKey(key)); err != nil || back != key {
			t.Errorf("%q was escaped and read back as %q, %v", key, back, err)
		}
	})
}

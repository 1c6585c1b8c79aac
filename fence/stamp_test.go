package fence_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
)

// TestAStampIsOnePrintableWord checks the text form, letter by letter, and that
// ParseStamp reads it back.
func TestAStampIsOnePrintableWord(t *testing.T) {
	for want, s := range map[string]fence.Stamp{
		"croft1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:0:k":                                            {Key: "k", Token: 1, Grant: ann},
		"croft1:9007199254740991:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb:18446744073709551615:a/b%3Ac%20": {Key: "a/b:c ", Token: fence.MaxToken, Grant: bob, Seq: 1<<64 - 1},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v is written as %s, want %s", s, got, want)
		}
		if back, err := fence.ParseStamp(want); err != nil || back != s {
			t.Errorf("%s was read as %+v, %v", want, back, err)
		}
	}
	for _, key := range odd {
		s := fence.Stamp{Key: key, Token: 42, Grant: ann, Seq: 1}
		if back, err := fence.ParseStamp(s.String()); err != nil || back != s {
			t.Errorf("the stamp of %q was read back as %+v, %v", key, back, err)
		}
	}
}

// TestParseStampRefusesWhatOnlyResembles: one stamp has exactly one text. So
// texts can be compared, and no variant slips in.
func TestParseStampRefusesWhatOnlyResembles(t *testing.T) {
	const a = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for text, want := range map[string]string{
		"":                         "does not begin with croft1",
		"7":                        "does not begin with croft1",
		"croft2:1:" + a + ":0:k":   "does not begin with croft1",
		"CROFT1:1:" + a + ":0:k":   "does not begin with croft1",
		" croft1:1:" + a + ":0:k":  "does not begin with croft1",
		"croft1":                   "does not have the form croft1:token:grant:seq:key",
		"croft1:1:" + a + ":0":     "does not have the form",
		"croft1:1:" + a + ":0:k:k": "does not have the form",
		"croft1:x:" + a + ":0:k":   "token is not a number",
		"croft1::" + a + ":0:k":    "token is not a number",
		"croft1:1e3:" + a + ":0:k": "token is not a number",
		"croft1:0x1:" + a + ":0:k": "token is not a number",
		"croft1:99999999999999999999:" + a + ":0:k": "token is not a number",
		"croft1:0:" + a + ":0:k":                    "token 0: it must be between 1 and 9007199254740991",
		"croft1:-1:" + a + ":0:k":                   "token -1",
		"croft1:9007199254740992:" + a + ":0:k":     "token 9007199254740992",
		"croft1:+1:" + a + ":0:k":                   "not in the one form",
		"croft1:01:" + a + ":0:k":                   "not in the one form",
		"croft1:1:" + a + ":-1:k":                   "sequence is not a number",
		"croft1:1:" + a + "::k":                     "sequence is not a number",
		"croft1:1:" + a + ":18446744073709551616:k": "sequence is not a number",
		"croft1:1:" + a + ":00:k":                   "not in the one form",
		"croft1:1:" + a[1:] + ":0:k":                "32 lower-case hex digits",
		"croft1:1:" + strings.ToUpper(a) + ":0:k":   "32 lower-case hex digits",
		"croft1:1:" + a + ":0:":                     "key: it is empty",
		"croft1:1:" + a + ":0:..":                   `a segment may not be ".."`,
		"croft1:1:" + a + ":0:a%0Ab":                "control character",
		"croft1:1:" + a + ":0:%FF":                  "not valid UTF-8",
		"croft1:1:" + a + ":0:%zz":                  "not percent-encoded",
		"croft1:1:" + a + ":0:k ":                   "not in the one form",
		"croft1:1:" + a + ":0:k\n":                  "control character",
		"croft1:1:" + a + ":0:é":                    "not in the one form",
		"croft1:1:" + a + ":0:%61":                  "not in the one form",
		"croft1:1:" + a + ":0:a%2fb":                "not in the one form",
		"croft1:1:" + a + ":0:%c3%a9":               "not in the one form",
		"croft1:1:" + a + ":0:a+b":                  "not in the one form",
		"croft1:1:" + a + ":0:k:":                   "croft1:token:grant:seq:key:id:signature",
		"croft1:1:" + a + ":0:k:" + a[:16]:          "croft1:token:grant:seq:key:id:signature",
		"croft1:1:" + a + ":0:k::":                  "signature: it must be",
		"croft1:1:" + a + ":0:k:" + a[:16] + ":":    "signature: it must be",
		strings.Repeat("croft1:", 1000):             "at most",
	} {
		s, err := fence.ParseStamp(text)
		if !errors.Is(err, fence.ErrInvalid) || s != (fence.Stamp{}) {
			t.Errorf("%q was read as %+v, %v; want it invalid", text, s, err)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to say %q", text, err, want)
		}
	}
}

// TestTheLongestStampIsRead with its signature.
func TestTheLongestStampIsRead(t *testing.T) {
	s := fence.Stamp{
		Key: strings.Repeat("é", fence.MaxKey/2), Token: fence.MaxToken, Grant: ann, Seq: math.MaxUint64,
		Signature: fence.Signature("0123456789abcdef:" + strings.Repeat("A", 86)),
	}
	if got, err := fence.ParseStamp(s.String()); err != nil || got != s || len(s.String()) != fence.MaxStamp {
		t.Errorf("%+v, %v; want %+v, of %d bytes and not %d", got, err, s, fence.MaxStamp, len(s.String()))
	}
	s.Signature = "none"
	if err := s.Check(); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a signature without form: %v", err)
	}
}

// TestParseStampDoesNotRepeatALease: if somebody passes the text of a lease,
// its secret does not appear in the error, and so in no log.
func TestParseStampDoesNotRepeatALease(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	for _, text := range []string{"croft-lease1:5:" + secret + ":1m0s:k", secret} {
		if _, err := fence.ParseStamp(text); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v, want an error without the secret", text, err)
		}
	}
}

// FuzzParseStamp: ParseStamp and String are inverse, and ParseStamp reads
// nothing but what String writes.
func FuzzParseStamp(f *testing.F) {
	for _, key := range odd {
		f.Add(fence.Stamp{Key: key, Token: 1_763_000_000_000_000, Grant: ann, Seq: 7}.String())
	}
	f.Add("croft1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:0:k:0123456789abcdef:" + strings.Repeat("A", 86))
	f.Add("croft1:01:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:0:k")
	f.Add("croft1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:0:%6b")
	f.Add("croft1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:+0:k")
	f.Add("croft-lease1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1m0s:k")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fence.ParseStamp(text)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) || s != (fence.Stamp{}) {
				t.Errorf("%q: %+v, %v; want an invalid one to give nothing", text, s, err)
			}
			return
		}
		if s.Check() != nil || s.String() != text {
			t.Errorf("%q was read as %+v (%v), which is written as %q", text, s, s.Check(), s)
		}
	})
}

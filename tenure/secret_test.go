package tenure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

const anySecret tenure.Secret = "0123456789abcdef0123456789abcdef"

// TestASecretIsNotShown: printing a secret, or a value that contains it, does
// not reveal it, and neither does a structured log.
func TestASecretIsNotShown(t *testing.T) {
	deed := tenure.Deed{Key: key, Token: 7, Secret: anySecret, TTL: time.Minute}
	request := tenure.Request{Verb: tenure.Acquire, Key: key, Secret: anySecret}
	var log strings.Builder
	for _, value := range []any{anySecret, &deed, deed, request, &request, []tenure.Secret{anySecret}, map[string]tenure.Secret{"x": anySecret}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
			fmt.Fprintf(&log, verb+"\n", value)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Errorf("%T: %v", value, err)
		}
		log.Write(text)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
	}
	for _, form := range []string{string(anySecret), fmt.Sprintf("%x", string(anySecret)), fmt.Sprintf("%X", string(anySecret))} {
		if at := strings.Index(log.String(), form); at >= 0 {
			t.Errorf("the secret shows: …%s", log.String()[max(0, at-80):at+len(form)])
		}
	}
	if want := "croft-lease1:7:[secret]:1m0s:reports/daily"; deed.String() != want {
		t.Errorf("the deed prints as %s, want %s", deed, want)
	}
}

// TestSecretsAreValidAndDistinct: and so are their fingerprints, which do not
// contain them.
func TestSecretsAreValidAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := tenure.NewSecret()
		if !s.Valid() || !s.Grant().Valid() || seen[string(s)] || seen[string(s.Grant())] {
			t.Fatalf("%s, grant %s", string(s), s.Grant())
		}
		seen[string(s)], seen[string(s.Grant())] = true, true
	}
	// The first 128 bits of SHA-256. Every other implementation of a store must
	// agree.
	if got, want := anySecret.Grant(), fence.Grant("3eb1bd439947eb762998e566ccc2e099"); got != want {
		t.Errorf("the fingerprint is %s, want %s", got, want)
	}
	for _, bad := range []tenure.Secret{"", "0", anySecret + "0", "X" + anySecret[1:], "A" + anySecret[1:]} {
		if bad.Valid() {
			t.Errorf("%q is valid", string(bad))
		}
	}
}

// TestADeedIsOnePrintableWord checks the text form, letter by letter, that
// ParseDeed reads it back, and that the deed's stamp is the lease's.
func TestADeedIsOnePrintableWord(t *testing.T) {
	for want, d := range map[string]tenure.Deed{
		"croft-lease1:7:0123456789abcdef0123456789abcdef:1m0s:reports/daily":               {Key: key, Token: 7, Secret: anySecret, TTL: time.Minute},
		"croft-lease1:9007199254740991:0123456789abcdef0123456789abcdef:720h0m0s:a%3A%20b": {Key: "a: b", Token: fence.MaxToken, Secret: anySecret, TTL: tenure.MaxTTL},
		"croft-lease1:1:0123456789abcdef0123456789abcdef:10ms:%C3%A9":                      {Key: "é", Token: 1, Secret: anySecret, TTL: tenure.MinTTL},
		"croft-lease1:1:0123456789abcdef0123456789abcdef:1.0005s:k":                        {Key: "k", Token: 1, Secret: anySecret, TTL: time.Second + 500*time.Microsecond},
	} {
		if got := d.Text(); got != want {
			t.Errorf("written as %s, want %s", got, want)
		}
		if back, err := tenure.ParseDeed(want); err != nil || back != d {
			t.Errorf("%s was read as %+v, %v", want, back, err)
		}
		if stamp := d.Stamp(); stamp != (fence.Stamp{Key: d.Key, Token: d.Token, Grant: anySecret.Grant()}) || stamp.Check() != nil {
			t.Errorf("its stamp is %s", stamp)
		}
	}
	rec := play(t, "0s acquire ann")
	if d := (tenure.Deed{Key: key, Token: rec.Token, Secret: secretOf("ann"), TTL: rec.TTL}); d.Stamp() != rec.Stamp() {
		t.Errorf("the deed's stamp is %s, the record's %s", d.Stamp(), rec.Stamp())
	}
}

// TestParseDeedRefusesWhatOnlyResembles: and its errors never repeat the text,
// which may hold a secret.
func TestParseDeedRefusesWhatOnlyResembles(t *testing.T) {
	const s = string(anySecret)
	for text, want := range map[string]string{
		"":                                                       "form croft-lease1:token:secret:ttl:key",
		"junk":                                                   "form croft-lease1:token:secret:ttl:key",
		"croft1:7:" + s + ":0:k":                                 "form croft-lease1:token:secret:ttl:key",
		"croft-lease1:7:" + s + ":1m0s":                          "form croft-lease1:token:secret:ttl:key",
		"croft-lease1:7:" + s + ":1m0s:k:k":                      "form croft-lease1:token:secret:ttl:key",
		"croft-lease2:7:" + s + ":1m0s:k":                        "form croft-lease1:token:secret:ttl:key",
		" croft-lease1:7:" + s + ":1m0s:k":                       "form croft-lease1:token:secret:ttl:key",
		"croft-lease1:x:" + s + ":1m0s:k":                        "its token is not a valid number",
		"croft-lease1:0:" + s + ":1m0s:k":                        "its token is not a valid number",
		"croft-lease1:-7:" + s + ":1m0s:k":                       "its token is not a valid number",
		"croft-lease1:9007199254740992:" + s + ":1m0s:k":         "its token is not a valid number",
		"croft-lease1:7:" + s[1:] + ":1m0s:k":                    "its secret is not 32 lower-case hex digits",
		"croft-lease1:7:" + strings.ToUpper(s) + ":1m0s:k":       "its secret is not 32 lower-case hex digits",
		"croft-lease1:7:[secret]:1m0s:k":                         "its secret is not 32 lower-case hex digits",
		"croft-lease1:7:" + s + "::k":                            "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":60:k":                          "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":0s:k":                          "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":-1s:k":                         "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":9.999ms:k":                     "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":721h0m0s:k":                    "its TTL is not a valid duration",
		"croft-lease1:7:" + s + ":1m0s:%zz":                      "its key is not percent-encoded as it should be",
		"croft-lease1:7:" + s + ":1m0s:":                         "key: it is empty",
		"croft-lease1:7:" + s + ":1m0s:a//b":                     "empty segment",
		"croft-lease1:07:" + s + ":1m0s:k":                       "not in the one form that is written",
		"croft-lease1:+7:" + s + ":1m0s:k":                       "not in the one form that is written",
		"croft-lease1:7:" + s + ":60s:k":                         "not in the one form that is written",
		"croft-lease1:7:" + s + ":1m:k":                          "not in the one form that is written",
		"croft-lease1:7:" + s + ":1m0s:a b":                      "not in the one form that is written",
		"croft-lease1:7:" + s + ":1m0s:%6B":                      "not in the one form that is written",
		"croft-lease1:7:" + s + ":1m0s:a%3ab":                    "not in the one form that is written",
		"croft-lease1:7:" + s + ":1m0s:k\n":                      "control character",
		"croft-lease1:7:0123456789abcdef\n0123456789abcdef:1m:k": "its secret is not 32 lower-case hex digits",
	} {
		d, err := tenure.ParseDeed(text)
		if !errors.Is(err, fence.ErrInvalid) || d != (tenure.Deed{}) {
			t.Errorf("%q was read as %+v, %v; want it invalid", text, d, err)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to say %q", text, err, want)
		}
		if strings.Contains(err.Error(), s) || strings.Contains(err.Error(), s[1:]) {
			t.Errorf("%q: the error gives the secret away: %v", text, err)
		}
	}
}

// FuzzParseDeed: ParseDeed and Text are inverse, ParseDeed reads nothing but
// what Text writes, and its errors do not contain the secret.
func FuzzParseDeed(f *testing.F) {
	for _, key := range []string{"k", "reports/daily", "a:b c", "é", "%", "..."} {
		f.Add(tenure.Deed{Key: key, Token: 1_763_000_000_000_000, Secret: anySecret, TTL: time.Minute}.Text())
	}
	for _, text := range []string{"", "croft-lease1:07:0123456789abcdef0123456789abcdef:60s:k", "croft1:1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:0:k"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := tenure.ParseDeed(text)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) || d != (tenure.Deed{}) {
				t.Errorf("%q: %+v, %v; want an invalid one to give nothing", text, d, err)
			}
			if parts := strings.Split(text, ":"); len(parts) == 5 && tenure.Secret(parts[2]).Valid() && strings.Contains(err.Error(), parts[2]) && !strings.Contains(parts[4], parts[2]) {
				t.Errorf("%q: the error gives the secret away: %v", text, err)
			}
			return
		}
		if d.Text() != text || d.Stamp().Check() != nil {
			t.Errorf("%q was read as %+v (%v)", text, d, d.Stamp().Check())
		}
		if strings.Contains(d.String(), string(d.Secret)) && !strings.Contains(d.Key, string(d.Secret)) {
			t.Errorf("%s gives the secret away", d)
		}
	})
}

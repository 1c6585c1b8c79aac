package signed_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
)

func grant(n int) fence.Grant { return fence.Grant(fmt.Sprintf("%032x", n)) }

var stamp = fence.Stamp{Key: "reports/daily ü", Token: 1_790_000_000_000_000, Grant: grant(7), Seq: 3}

// TestASignedStampIsAdmittedByItsKeyAlone: its text form carries the signature,
// the holder may number its writes, and without keys nothing is asked.
func TestASignedStampIsAdmittedByItsKeyAlone(t *testing.T) {
	t.Parallel()
	key, other := signed.NewKey(), signed.NewKey()
	s := key.Sign(stamp)
	text := s.String()
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) || len(text) > fence.MaxStamp {
		t.Errorf("%q is no printable word of at most %d bytes", text, fence.MaxStamp)
	}
	read, err := fence.ParseStamp(text)
	if err != nil || read != s {
		t.Fatalf("%+v, %v; want %+v", read, err, s)
	}
	read.Seq = 9
	both, err := signed.ParseKeys(append(other.Public().PEM(), key.Public().PEM()...))
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]*signed.Keys{"its key": key.Public(), "two keys": both, "no keys": nil} {
		if err := keys.CheckNow(read); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := other.Public().CheckNow(read); !errors.Is(err, signed.ErrNotIssued) || !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("another key: %v", err)
	}
	if s.Mark() != stamp.Mark() || s.Mark().Stamp() != stamp {
		t.Error("the signature is in the mark")
	}
	if again := key.Sign(stamp); again != s {
		t.Error("the same stamp has two signatures")
	}
}

// TestAStampThatWasNotIssuedIsRefused, however it was made.
func TestAStampThatWasNotIssuedIsRefused(t *testing.T) {
	t.Parallel()
	key, other := signed.NewKey(), signed.NewKey()
	good := key.Sign(stamp)
	id, digits, _ := good.Signature.Split()
	otherID, otherDigits, _ := other.Sign(stamp).Signature.Split()
	signature := func(id, digits string) func(*fence.Stamp) {
		return func(s *fence.Stamp) { s.Signature = fence.Signature(id + ":" + digits) }
	}
	changed := []byte(digits)
	changed[10] ^= 1
	// The private key of the attacker signs the same text.
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	forged := base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte("croft stamp 1")))
	for name, change := range map[string]func(*fence.Stamp){
		"no signature":            func(s *fence.Stamp) { s.Signature = "" },
		"a higher token":          func(s *fence.Stamp) { s.Token++ },
		"another grant":           func(s *fence.Stamp) { s.Grant = grant(8) },
		"another key":             func(s *fence.Stamp) { s.Key = "reports/weekly" },
		"a key escaped otherwise": func(s *fence.Stamp) { s.Key = "reports/daily%20%C3%BC" },
		"the signature of another": func(s *fence.Stamp) {
			s.Signature = key.Sign(fence.Stamp{Key: s.Key, Token: s.Token + 1, Grant: s.Grant}).Signature
		},
		"another signer's signature": signature(id, otherDigits),
		"another signer":             signature(otherID, otherDigits),
		"another key id":             signature(otherID, digits),
		"an unknown key id":          signature("0123456789abcdef", digits),
		"a changed digit":            signature(id, string(changed)),
		"a made-up signature":        signature(id, forged),
		"zeros":                      signature(id, strings.Repeat("A", 86)),
		"an empty signature":         signature(id, ""),
		"an empty key id":            signature("", digits),
		"upper case":                 signature(strings.ToUpper("abcdefabcdefabcd"), digits),
		"a name of an algorithm":     signature("none", digits),
		"a prefix":                   signature("ed25519:"+id, digits),
		"padding":                    signature(id, digits+"=="),
		"a line break":               signature(id, digits[:85]+"\n"),
		"another alphabet":           signature(id, strings.Repeat("+", 86)),
		"a longer signature":         signature(id, digits+"A"),
		"two signatures":             signature(id, digits+":"+id+":"+digits),
	} {
		s := good
		change(&s)
		if err := key.Public().CheckNow(s); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := key.Public().Verify(s); !errors.Is(err, signed.ErrNotIssued) {
			t.Errorf("%s, without a look at its form: %v", name, err)
		}
	}
	future := key.Sign(fence.Stamp{Key: "a/b", Token: fence.MaxToken, Grant: grant(1)})
	if err := key.Public().CheckNow(future); !errors.Is(err, fence.ErrAhead) {
		t.Errorf("a signed token that no clock can have given: %v", err)
	}
}

// TestAKeyFileIsReadStrictly: no other algorithm, no text of endless keys, and
// no error that tells a private key.
func TestAKeyFileIsReadStrictly(t *testing.T) {
	t.Parallel()
	one, two := signed.NewKey(), signed.NewKey()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := x509.MarshalPKCS8PrivateKey(curve)
	public, _ := x509.MarshalPKIXPublicKey(&curve.PublicKey)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"no PEM":               "0123456789abcdef",
		"another private key":  block("PRIVATE KEY", private),
		"another public key":   block("PUBLIC KEY", public),
		"a public for private": strings.ReplaceAll(string(one.Public().PEM()), "PUBLIC", "PRIVATE"),
		"a certificate":        block("CERTIFICATE", public),
		"a good and a bad one": string(one.Private()) + block("PUBLIC KEY", public),
		"seventeen":            strings.Repeat(string(one.Private()), signed.MaxKeys+1),
		"too long":             strings.Repeat("#", signed.MaxSize) + string(one.Private()),
	} {
		_, err := signed.ParseKey([]byte(text))
		_, errs := signed.ParseKeys([]byte(text))
		if !errors.Is(err, fence.ErrInvalid) || !errors.Is(errs, fence.ErrInvalid) {
			t.Errorf("%s: %v and %v", name, err, errs)
		}
	}
	if _, err := signed.ParseKey(one.Public().PEM()); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a public key to sign with: %v", err)
	}
	file := append(one.Private(), two.Public().PEM()...)
	key, err := signed.ParseKey(file)
	if err != nil || key.ID() != one.ID() {
		t.Fatalf("%v, %v", key, err)
	}
	keys, err := signed.ParseKeys(append(file, file...))
	if err != nil || len(keys.IDs()) != 2 || keys.IDs()[0] != one.ID() || keys.IDs()[1] != two.ID() {
		t.Errorf("%v, %v; want %s and %s, once each", keys, err, one, two)
	}
	if text := string(keys.PEM()); strings.Contains(text, "PRIVATE") || text != string(one.Public().PEM())+string(two.Public().PEM()) {
		t.Errorf("the public keys are %s", text)
	}
	for _, shown := range []string{fmt.Sprintf("%v", key), fmt.Sprintf("%#v", key), fmt.Sprintf("%+v", struct{ K *signed.Key }{key})} {
		if strings.Contains(shown, "[") || len(shown) > 64 {
			t.Errorf("the key prints as %s", shown)
		}
	}
}

// FuzzVerify: the key admits the signed stamp alone. Its sequence number may be
// any.
func FuzzVerify(f *testing.F) {
	key := signed.NewKey()
	good := key.Sign(stamp)
	f.Add(good.String())
	f.Add(stamp.String() + ":0123456789abcdef:" + strings.Repeat("A", 86))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fence.ParseStamp(text)
		if err != nil {
			return
		}
		same := s
		same.Seq = good.Seq
		if err := key.Public().Verify(s); (err == nil) != (same == good) {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}

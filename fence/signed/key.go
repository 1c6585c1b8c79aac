package signed

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"

	"github.com/croft-dev/croft/fence"
)

const (
	// MaxSize is the size of the largest file of keys, in bytes.
	MaxSize = 64 << 10
	// MaxKeys is how many keys a file may hold.
	MaxKeys = 16
)

// Key signs stamps. It is safe for concurrent use. It prints as its id.
type Key struct {
	id      string
	private ed25519.PrivateKey
}

// NewKey makes a random key.
func NewKey() *Key {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // never: crypto/rand aborts the program instead
	}
	return newKey(private)
}

func newKey(private ed25519.PrivateKey) *Key {
	return &Key{idOf(private.Public().(ed25519.PublicKey)), private}
}

// ParseKey reads a private key in PEM form. It must be the first key in the
// text; others may follow. The error matches fence.ErrInvalid, and repeats
// nothing of the text.
func ParseKey(text []byte) (*Key, error) {
	found, err := parse(text)
	if err != nil {
		return nil, err
	}
	if found[0].private == nil {
		return nil, fmt.Errorf("%w signing key: the first key is a public one; put the private key first",
			fence.ErrInvalid)
	}
	return newKey(found[0].private), nil
}

// ID returns the id of the key, which signatures carry: 16 hex digits that are
// made from the public key.
func (k *Key) ID() string { return k.id }

// String returns the id of the key.
func (k *Key) String() string { return k.id }

// GoString hides the private key from %#v.
func (k *Key) GoString() string { return fmt.Sprintf("signed.Key(%q)", k.id) }

// Private returns the key in PEM form. Keep it in a file of mode 0600.
func (k *Key) Private() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		panic(err) // never: the type of the key is known
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
}

// Public returns the keys that verify what k signs.
func (k *Key) Public() *Keys {
	return &Keys{all: []publicKey{{k.id, k.private.Public().(ed25519.PublicKey)}}}
}

// Sign returns the stamp with a signature. It does not check the stamp: sign
// only stamps of grants.
func (k *Key) Sign(s fence.Stamp) fence.Stamp {
	digits := base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, message(s)))
	s.Signature = fence.Signature(k.id + ":" + digits)
	return s
}

// message returns the bytes of a stamp that the key signs.
func message(s fence.Stamp) []byte {
	return fmt.Appendf(nil, "croft stamp 1\x00%d:%s:%s", s.Token, s.Grant, fence.EscapeKey(s.Key))
}

// idOf makes the id of a key from its public half.
func idOf(public ed25519.PublicKey) string {
	sum := sha256.Sum256(append([]byte("croft key 1\x00"), public...))
	return hex.EncodeToString(sum[:8])
}

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// parsed is one key of a text. private is nil if only the public half is there.
type parsed struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// parse reads all keys of a text. There is at least one.
func parse(text []byte) ([]parsed, error) {
	bad := func(format string, args ...any) ([]parsed, error) {
		return nil, fmt.Errorf("%w keys: %s", fence.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if len(text) > MaxSize {
		return bad("the text has %d bytes, at most %d are allowed", len(text), MaxSize)
	}
	var found []parsed
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if len(found) == MaxKeys {
			return bad("there are more than %d", MaxKeys)
		}
		k, ok := read(block)
		if !ok {
			return bad("number %d is no Ed25519 key in PEM form; make one with openssl genpkey -algorithm ed25519",
				len(found)+1)
		}
		found = append(found, k)
	}
	if len(found) == 0 {
		return bad("there is none in PEM form; make one with openssl genpkey -algorithm ed25519")
	}
	return found, nil
}

// read reads one key.
func read(block *pem.Block) (k parsed, ok bool) {
	switch block.Type {
	case privateBlock:
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return k, false
		}
		if k.private, ok = key.(ed25519.PrivateKey); ok {
			k.public = k.private.Public().(ed25519.PublicKey)
		}
	case publicBlock:
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return k, false
		}
		k.public, ok = key.(ed25519.PublicKey)
	}
	return k, ok
}

package signed

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/croft-dev/croft/fence"
)

// ErrNotIssued refuses a stamp that none of a guard's keys has signed: it was
// made up or changed, or it comes from a store whose key the guard does not
// know. Every error that matches ErrNotIssued also matches fence.ErrInvalid.
var ErrNotIssued = errors.New("no key that is known here has signed it")

// Keys are public keys. They never change, so they need no lock. A nil *Keys
// means that stamps need no signature.
type Keys struct{ all []publicKey }

type publicKey struct {
	id     string
	public ed25519.PublicKey
}

// ParseKeys reads keys in PEM form. It keeps the public half of private keys.
// The error matches fence.ErrInvalid, and repeats nothing of the text.
func ParseKeys(text []byte) (*Keys, error) {
	found, err := parse(text)
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	for _, one := range found {
		id := idOf(one.public)
		if k.find(id) == nil {
			k.all = append(k.all, publicKey{id, one.public})
		}
	}
	return k, nil
}

// CheckNow is what a guard calls before it compares a stamp with its mark. It
// makes the checks of [fence.Stamp.CheckNow]. Unless k is nil, it also refuses
// a stamp that none of the keys has signed. Its errors match fence.ErrInvalid.
func (k *Keys) CheckNow(s fence.Stamp) error {
	if err := s.CheckNow(); err != nil {
		return err
	}
	return k.Verify(s)
}

// Verify refuses a stamp that none of the keys has signed. The error matches
// [ErrNotIssued]. If k is nil, Verify refuses nothing.
func (k *Keys) Verify(s fence.Stamp) error {
	if k == nil {
		return nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w stamp for %q: %w: %s", fence.ErrInvalid, s.Key, ErrNotIssued, why)
	}
	if s.Signature == "" {
		return refuse("it has no signature; take the lease from a server that signs, " +
			"and pass its stamp on unchanged")
	}
	id, digits, ok := s.Signature.Split()
	if !ok {
		return refuse("its signature does not have the right form")
	}
	public := k.find(id)
	if public == nil {
		return refuse(fmt.Sprintf("it names the key %s, which is not among the keys of this guard", id))
	}
	signature, err := base64.RawURLEncoding.DecodeString(digits)
	if err != nil || !ed25519.Verify(public, message(s), signature) {
		return refuse("its signature is of another stamp, or made up")
	}
	return nil
}

// IDs returns the ids of the keys, in their order.
func (k *Keys) IDs() []string {
	ids := make([]string, len(k.all))
	for i, key := range k.all {
		ids[i] = key.id
	}
	return ids
}

// PEM returns the keys in PEM form, which [ParseKeys] reads.
func (k *Keys) PEM() []byte {
	var text bytes.Buffer
	for _, key := range k.all {
		der, err := x509.MarshalPKIXPublicKey(key.public)
		if err != nil {
			panic(err) // never: the type of the key is known
		}
		_ = pem.Encode(&text, &pem.Block{Type: publicBlock, Bytes: der})
	}
	return text.Bytes()
}

func (k *Keys) find(id string) ed25519.PublicKey {
	i := slices.IndexFunc(k.all, func(key publicKey) bool { return key.id == id })
	if i < 0 {
		return nil
	}
	return k.all[i].public
}

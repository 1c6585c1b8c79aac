package gcs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode/utf16"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// The metadata of a guarded object.
const (
	metaMark    = "croft-mark"
	metaRekeyed = "croft-rekeyed"
	metaNonce   = "croft-nonce"  // of the last change; finds a write whose reply was lost
	metaWrites  = "croft-writes" // how many were admitted so far
	metaEmpty   = "croft-empty"  // set if the mark was raised before there was any content
)

// state is an object as the guard sees it.
type state struct {
	attrs   *storage.Object // nil: there is none
	mark    fence.Mark
	rekeyed *guard.Rekeyed
	nonce   string
}

// written reports whether anybody has written content to the object.
func (s state) written() bool { return s.attrs != nil && s.attrs.Metadata[metaEmpty] == "" }

// writes is the number of writes admitted so far.
func (s state) writes() uint64 {
	if s.attrs == nil {
		return 0
	}
	n, err := strconv.ParseUint(s.attrs.Metadata[metaWrites], 10, 64)
	if err != nil {
		return 0 // none, or others have changed it: it decides nothing
	}
	return n
}

// conditions returns the conditions under which a change directly follows this
// state.
func (s state) conditions() *condition {
	if s.attrs == nil {
		return absent
	}
	return &condition{s.attrs.Generation, s.attrs.Metageneration}
}

// look reads an object's state: one request.
func (g *Guard) look(ctx context.Context) (state, error) {
	if ctx.Err() != nil {
		return state{}, store.Unknown(wait.Ended(ctx))
	}
	for try := 1; ; try++ {
		attrs, err := g.bucket.attrs(ctx, g.object)
		switch v := judge(err); {
		case v == done:
			return g.read(attrs)
		case v == missing:
			if err := g.bucket.gone(err); err != nil {
				return state{}, store.Unknown(err)
			}
			return state{}, nil
		case !g.bucket.again(ctx, v, try):
			return state{}, store.Unknown(g.bucket.explain(ctx, rightGet, err))
		}
	}
}

// read reads the mark from an object's metadata.
func (g *Guard) read(attrs *storage.Object) (state, error) {
	s := state{attrs: attrs, nonce: attrs.Metadata[metaNonce]}
	damaged := func(name string) (state, error) {
		return state{}, fmt.Errorf("%w: %s of %s is %.200q; once no old writer lives, remove it"+
			" and raise the fence with the present owner's stamp",
			ErrMarkDamaged, name, g.target, attrs.Metadata[name])
	}
	if text := attrs.Metadata[metaMark]; text != "" {
		if json.Unmarshal([]byte(text), &s.mark) != nil || s.mark.IsZero() || s.mark.Check() != nil {
			return damaged(metaMark)
		}
	}
	if text := attrs.Metadata[metaRekeyed]; text != "" {
		if json.Unmarshal([]byte(text), &s.rekeyed) != nil {
			return damaged(metaRekeyed)
		}
	}
	return s, nil
}

// metadata returns the object's metadata with the new mark in it. Entries of
// others stay.
func (s state) metadata(mark fence.Mark, nonce string, rekeyed *guard.Rekeyed) (map[string]string, error) {
	meta := map[string]string{}
	if s.attrs != nil {
		maps.Copy(meta, s.attrs.Metadata)
	}
	text, err := ascii(mark)
	if err != nil {
		return nil, err
	}
	meta[metaMark], meta[metaNonce] = text, nonce
	if rekeyed != nil {
		if meta[metaRekeyed], err = ascii(rekeyed); err != nil {
			return nil, err
		}
	}
	return meta, nil
}

// ascii encodes a value as JSON in ASCII, because some readers get metadata as
// headers. It is as short as possible, because an object's metadata has room
// for 8 KiB.
func ascii(v any) (string, error) {
	var b, out strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return "", err
	}
	for _, unit := range utf16.Encode([]rune(strings.TrimSuffix(b.String(), "\n"))) {
		if unit < 0x80 {
			out.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&out, "\\u%04x", unit)
		}
	}
	return out.String(), nil
}

// carry makes the attributes of a new generation that begins with head. It
// takes over everything from the old generation except the content.
func (s state) carry(contentType string, meta map[string]string, head []byte) *storage.Object {
	next := &storage.Object{ContentType: contentType, Metadata: meta}
	if s.written() {
		next.ContentLanguage, next.ContentDisposition = s.attrs.ContentLanguage, s.attrs.ContentDisposition
		next.CacheControl, next.StorageClass = s.attrs.CacheControl, s.attrs.StorageClass
		// The service unpacks content that is declared as packed. If it is not
		// packed, readers get an error.
		if s.attrs.ContentEncoding != "gzip" || bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
			next.ContentEncoding = s.attrs.ContentEncoding
		}
		if contentType == "" {
			next.ContentType = s.attrs.ContentType
		}
	}
	return next
}

// errSuperseded: the reply was lost, and the object has been changed by another
// since. So nobody can tell whether this change was made before.
var errSuperseded = errors.New("the reply was lost and the object has been changed by another since;" +
	" look at the mark, and write again if it is still yours to write")

// commit sends a change until its outcome is known. It returns errMismatch if
// the change was not made, because the state has changed.
func (g *Guard) commit(ctx context.Context, nonce, right string, send func(ctx context.Context) error) error {
	doubt := false // a copy may have taken effect
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return store.Unknown(wait.Ended(ctx))
		}
		err := send(ctx)
		switch v := judge(err); {
		case v == done:
			return nil
		case (v == mismatch || v == missing) && !doubt:
			return errMismatch
		case v == mismatch || v == missing: // perhaps because of a copy of this very change
			now, err := g.look(ctx)
			switch {
			case err != nil:
				return err
			case now.nonce == nonce:
				return nil
			}
			return store.Unknown(errSuperseded)
		case !g.bucket.again(ctx, v, try):
			return store.Unknown(g.bucket.explain(ctx, right, err))
		default:
			doubt = doubt || v == doubtful
		}
	}
}

// settle looks, decides and sends, until the decision and the change are about
// the same state. send may send nothing if the mark stays the same.
func (g *Guard) settle(
	ctx context.Context, decide func(fence.Mark) (fence.Mark, error),
	send func(ctx context.Context, s state, mark fence.Mark, nonce string) error,
) (before state, mark fence.Mark, err error) {
	for try := 0; ; try++ {
		if try > 1 && objects.Pause(ctx, min(try-2, 3)) != nil {
			return state{}, fence.Mark{}, store.Unknown(wait.Ended(ctx))
		}
		if before, err = g.look(ctx); err != nil {
			return state{}, fence.Mark{}, err
		}
		if mark, err = decide(before.mark); err != nil {
			return before, before.mark, err
		}
		if err = send(ctx, before, mark, objects.NewNonce()); !errors.Is(err, errMismatch) {
			return before, mark, err
		}
	}
}

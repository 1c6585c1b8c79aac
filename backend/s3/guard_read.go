package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/croft-dev/croft/guard"
)

var _ guard.Reader = (*Guard)(nil)

// ErrContentDamaged is matched by the error about content whose hash is not the
// committed one.
var ErrContentDamaged = errors.New("the content is not what was committed")

// Open reads the content that the manifest names, and verifies its hash. That
// is the content of the newest admitted write, even if the plain copy differs.
// An object that no guard has written is read as it is. If there is no content,
// the error matches fs.ErrNotExist.
func (g *Guard) Open(ctx context.Context) (*Reader, error) {
	missing := "" // the payload that the last try did not find
	for {
		now, err := g.read(ctx)
		if err != nil {
			return nil, unknown(err)
		}
		name := g.key
		if now.Payload != nil {
			name = now.Payload.Name
		}
		body, size, err := g.open(ctx, name)
		switch {
		case err == nil && now.Payload == nil:
			return &Reader{ReadCloser: body, Mark: now.Mark, Size: size}, nil
		case err == nil:
			body = &verified{body, sha256.New(), now.Payload, 0}
			return &Reader{ReadCloser: body, Mark: now.Mark, Size: now.Payload.Size}, nil
		case faultOf(err) != absent:
			return nil, unknown(g.explain(err))
		case now.Payload == nil:
			return nil, fmt.Errorf("%s: %w", g.target, fs.ErrNotExist)
		case missing == name:
			return nil, fmt.Errorf("%w: %s names %s, which is gone; write again",
				ErrManifestDamaged, g.manifestName(), name)
		}
		missing = name // another write may have replaced and removed it
	}
}

// verified compares the content that is read with the committed size and hash.
type verified struct {
	io.ReadCloser
	hash hash.Hash
	want *payload
	size int64
}

func (v *verified) Read(buf []byte) (int, error) {
	n, err := v.ReadCloser.Read(buf)
	v.hash.Write(buf[:n])
	v.size += int64(n)
	if errors.Is(err, io.EOF) &&
		(v.size != v.want.Size || hex.EncodeToString(v.hash.Sum(nil)) != v.want.SHA256) {
		return n, fmt.Errorf("%w: %s has %d bytes with another hash than its manifest says; write again",
			ErrContentDamaged, v.want.Name, v.size)
	}
	return n, err
}

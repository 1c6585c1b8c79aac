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

// ErrContentDamaged is matched by the error about content whose hash is not the one that was committed.
var ErrContentDamaged = errors.New("the content is not what was committed")

// Open reads the content that the manifest names, and verifies it by its hash: the content of the newest admitted write, whatever the plain copy shows. An object that has never been written through a guard is
// read as it is. Its error matches fs.ErrNotExist if there is no content.
func (g *Guard) Open(ctx context.Context) (*Reader, error) {
	missing := "" // the payload that was not there at the last look
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
			return nil, fmt.Errorf("%w: %s names %s, which is gone; write again", ErrManifestDamaged, g.manifestName(), name)
		}
		missing = name // replaced since the manifest was read, and removed
	}
}

// verified compares what is read with what was committed.
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
	if errors.Is(err, io.EOF) && (v.size != v.want.Size || hex.EncodeToString(v.hash.Sum(nil)) != v.want.SHA256) {
		return n, fmt.Errorf("%w: %s has %d bytes with another hash than its manifest says; write again", ErrContentDamaged, v.want.Name, v.size)
	}
	return n, err
}

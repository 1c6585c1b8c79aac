package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"path"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
)

const (
	// partSize is the size of the first thousand parts. Each further thousand
	// is half as large again. A service allows ten thousand parts, which then
	// hold 900 GiB.
	partSize = 8 << 20
	maxParts = 10_000
	// inFlight is how many parts are in memory at once.
	inFlight = 3
)

// upload stores the content of r as an object of its own. No manifest names it
// yet. Nobody else uses its name, so the SDK may send lost requests again.
func (g *Guard) upload(ctx context.Context, stamp fence.Stamp, r io.Reader) (*payload, error) {
	content := &payload{Name: fmt.Sprintf("%s%s%d-%s", g.key, payloadFolder, stamp.Token, objects.NewNonce())}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := &uploading{
		Guard: g, ctx: ctx, stop: cancel, stamp: stamp, name: content.Name,
		slots: make(chan struct{}, inFlight), parts: make(chan part),
	}
	// The caller's reader may hang. It has a goroutine of its own, so that this
	// one notices the end of ctx.
	go u.read(r)
	sum := sha256.New()
	err := u.send(func(data []byte) {
		sum.Write(data)
		content.Size += int64(len(data))
	})
	u.sent.Wait()
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause // the error of a part
	}
	if err == nil && u.id != "" {
		err = u.complete(content.Size)
	}
	if err != nil {
		u.abandon()
		return nil, err
	}
	content.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return content, nil
}

// part is a piece of the content. last is set if nothing follows it.
type part struct {
	number int32
	data   []byte
	last   bool
	err    error
}

// uploading is one upload that is under way. One goroutine reads parts, the
// caller's goroutine takes them, and each part is sent by another.
type uploading struct {
	*Guard
	ctx   context.Context
	stop  context.CancelCauseFunc
	stamp fence.Stamp
	name  string
	slots chan struct{} // a token for each part in memory
	parts chan part
	id    string // of a multipart upload; empty while one PUT is enough

	sent sync.WaitGroup // the parts in flight
	mu   sync.Mutex     // guards done
	done []types.CompletedPart
}

// read cuts the content of r into parts.
func (u *uploading) read(r io.Reader) {
	size := u.partSize
	for number := int32(1); ; number++ {
		if number > 1 && number%1000 == 1 {
			size += size / 2
		}
		select {
		case u.slots <- struct{}{}:
		case <-u.ctx.Done():
			return
		}
		var data bytes.Buffer
		if number > 1 { // the first part is mostly the only one, and small
			data.Grow(size + bytes.MinRead)
		}
		p := part{number: number}
		// Not io.ReadFull: it cannot tell the end from a source that was cut
		// short.
		if _, err := io.CopyN(&data, r, int64(size)); err == io.EOF { //nolint:errorlint // a wrapped EOF is no end
			p.last = true
		} else {
			p.err = err
		}
		p.data = data.Bytes()
		select {
		case u.parts <- p:
		case <-u.ctx.Done():
			return
		}
		if p.last || p.err != nil {
			return
		}
	}
}

// send uploads the parts as they come. If there is only one, it uses one PUT.
func (u *uploading) send(seen func([]byte)) error {
	for {
		var p part
		select {
		case p = <-u.parts:
		case <-u.ctx.Done():
			return store.Unknown(context.Cause(u.ctx))
		}
		if p.err != nil {
			return p.err
		}
		seen(p.data)
		switch {
		case p.number > maxParts:
			return fmt.Errorf("%w content: it is larger than the %d parts that a service takes; write it in pieces",
				fence.ErrInvalid, maxParts)
		case p.last && u.id == "":
			return u.putWhole(p.data)
		case p.last && len(p.data) == 0:
			return nil
		case u.id == "":
			if err := u.begin(); err != nil {
				return err
			}
		}
		u.sent.Go(func() { u.sendPart(p) })
		if p.last {
			return nil
		}
	}
}

// contentType is the content type of the plain copy.
func (g *Guard) contentType() *string {
	if kind := mime.TypeByExtension(path.Ext(g.key)); kind != "" {
		return &kind
	}
	return aws.String("application/octet-stream")
}

func (u *uploading) metadata() map[string]string {
	return map[string]string{"croft-stamp": u.stamp.String()}
}

func (u *uploading) putWhole(data []byte) error {
	_, err := u.client.PutObject(u.ctx, &awss3.PutObjectInput{
		Bucket: &u.bucket.name, Key: &u.name, Body: bytes.NewReader(data),
		ContentType: u.contentType(), Metadata: u.metadata(),
	})
	return u.failed(err)
}

func (u *uploading) begin() error {
	out, err := u.client.CreateMultipartUpload(u.ctx, &awss3.CreateMultipartUploadInput{
		Bucket: &u.bucket.name, Key: &u.name, ContentType: u.contentType(), Metadata: u.metadata(),
	})
	if err != nil {
		return u.failed(err)
	}
	u.id = aws.ToString(out.UploadId)
	return nil
}

func (u *uploading) sendPart(p part) {
	out, err := u.client.UploadPart(u.ctx, &awss3.UploadPartInput{
		Bucket: &u.bucket.name, Key: &u.name, UploadId: &u.id, PartNumber: &p.number, Body: bytes.NewReader(p.data),
	})
	if err != nil {
		u.stop(u.failed(err))
		return
	}
	u.mu.Lock()
	u.done = append(u.done, types.CompletedPart{ETag: out.ETag, PartNumber: &p.number})
	u.mu.Unlock()
	<-u.slots
}

// complete makes an object of the parts. A reply may be lost, and then a second
// request is told that there is no such upload. In that case the object itself
// shows that the first request was carried out, because nobody else writes to
// its name.
func (u *uploading) complete(size int64) error {
	err := u.finish(u.ctx, u.name, u.id, u.done)
	if _, code := answerOf(err); err != nil && (code == "NoSuchUpload" || faultOf(err) == unsure) &&
		u.ctx.Err() == nil {
		out, headErr := u.client.HeadObject(u.ctx, &awss3.HeadObjectInput{Bucket: &u.bucket.name, Key: &u.name})
		if headErr == nil && aws.ToInt64(out.ContentLength) == size {
			return nil
		}
	}
	return u.failed(err)
}

// failed returns the error of a payload's own request. Nothing was committed.
func (u *uploading) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case u.ctx.Err() != nil:
		return store.Unknown(context.Cause(u.ctx))
	}
	return unknown(u.explain(err))
}

// abandon removes the parts that have arrived, even if the caller's context has
// ended. If it fails, a sweep removes them later.
func (u *uploading) abandon() {
	u.stop(context.Canceled)
	u.sent.Wait()
	if u.id == "" {
		u.forget(u.name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = u.client.AbortMultipartUpload(ctx, &awss3.AbortMultipartUploadInput{
		Bucket: &u.bucket.name, Key: &u.name, UploadId: &u.id,
	})
	u.forget(u.name) // in case it was completed and the reply was lost
}

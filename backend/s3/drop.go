package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
)

// dropping deletes records on services without conditional deletes.
//
// With a plain DELETE, a client would look at the record and then send the
// request. The request could arrive after somebody else was granted the key. So
// the client first replaces the record by an announcement, on condition that
// the record is still the old one.
//
// The DELETE that follows is signed for a short time, counted from the
// announcement by the service's own clock. After that the service refuses it.
// So it cannot arrive late, even if the process was stopped in between or the
// network held the request back.
//
// A record may take the place of the announcement only after that time, and
// after a good while in which the service can finish accepted requests. A
// client that wants the key meanwhile waits. Mostly it waits for a moment,
// until the object is deleted.
type dropping struct {
	within time.Duration // how long after the announcement the service accepts the DELETE
	lapse  time.Duration // after this time no DELETE is under way any more
	// unconditional leaves the tag out of the DELETE, for tests. It shows what
	// holds on a service that does not know the condition.
	unconditional bool
}

func newDropping() dropping { return dropping{within: 10 * time.Second, lapse: 30 * time.Second} }

// lapsed reports whether the announced deletion can no longer happen.
func (d dropping) lapsed(announced *objects.Dropped, date time.Time) bool {
	return !date.Before(announced.At.Add(d.lapse))
}

// Drop announces the deletion of a version, and then deletes it.
func (r *register) Drop(ctx context.Context, key string, old cas.Version) error {
	r.memory.Forget(key)
	return r.remove(ctx, r.layout.Record(key), key, string(old))
}

// finishDrop deletes an object whose announced deletion did not happen.
func (r *register) finishDrop(ctx context.Context, name string, o object) {
	if body, err := r.layout.Read(name, o.data); err == nil && body.Dropped != nil && !r.versioned.Load() {
		_ = r.remove(ctx, name, body.Dropped.Key, o.tag) // if it fails, the next sweep tries again
	}
}

func (r *register) remove(ctx context.Context, name, key, tag string) error {
	at, _, err := r.span(ctx)
	if err != nil {
		return err
	}
	data, _, err := objects.WriteDropped(key, at)
	if err != nil {
		return err
	}
	announced, err := r.swap(ctx, name, tag, data)
	if err != nil {
		if errors.Is(err, errOvertaken) {
			return cas.ErrConflict
		}
		return err
	}
	// From here on the store has no record of the key. The next sweep removes
	// an announcement that stays behind.
	if r.versioned.Load() {
		// Here a DELETE would only add a marker on top of the old versions.
		// Servers differ in whether an object can be created over a marker. So
		// the announcement stays, which is small, and the next record replaces
		// it.
		return nil
	}
	// The DELETE is signed for the time in the announcement, however late it is
	// now. The tag is for networks that deliver a request twice. If the service
	// knows the condition, the second copy deletes nothing of a new holder.
	if r.drop.unconditional {
		announced = ""
	}
	status, err := r.deleteWithin(ctx, name, announced, at, r.drop.within)
	if err == nil && status == http.StatusNotImplemented {
		_, _ = r.deleteWithin(ctx, name, "", at, r.drop.within)
	}
	return nil
}

// deleteWithin sends a DELETE that the service accepts only for a short time
// after at, on its own clock. It is sent once. tag may be empty. It returns the
// status of the answer.
func (b *bucket) deleteWithin(ctx context.Context, name, tag string, at time.Time, within time.Duration) (int, error) {
	request, err := b.signDelete(ctx, name, tag, at, within)
	if err != nil {
		return 0, err
	}
	response, err := b.client.Options().HTTPClient.Do(request)
	if err != nil {
		return 0, b.explain(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be reused
	return response.StatusCode, response.Body.Close()
}

func (b *bucket) signDelete(
	ctx context.Context, name, tag string, at time.Time, within time.Duration,
) (*http.Request, error) {
	in := &awss3.DeleteObjectInput{Bucket: &b.name, Key: &name}
	if tag != "" {
		in.IfMatch = &tag
	}
	signer := awss3.NewPresignClient(b.client, func(o *awss3.PresignOptions) {
		o.Presigner = signedAt{v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), at}
		o.Expires = within
	})
	signed, err := signer.PresignDeleteObject(ctx, in)
	if err != nil {
		return nil, b.explain(err)
	}
	request, err := http.NewRequestWithContext(ctx, signed.Method, signed.URL, nil)
	if err != nil {
		return nil, err
	}
	for header, values := range signed.SignedHeader {
		if header != "Host" {
			request.Header[header] = values
		}
	}
	return request, nil
}

// signedAt signs for a given time instead of this machine's.
type signedAt struct {
	awss3.HTTPPresignerV4
	at time.Time
}

func (s signedAt) PresignHTTP(
	ctx context.Context, credentials aws.Credentials, r *http.Request, payloadHash, service, region string,
	_ time.Time, options ...func(*v4.SignerOptions),
) (string, http.Header, error) {
	return s.HTTPPresignerV4.PresignHTTP(ctx, credentials, r, payloadHash, service, region, s.at, options...)
}

// awaitDrop waits until an announced deletion has happened or can no longer
// happen. It then returns ErrConflict, so that the caller reads the key again.
func (r *register) awaitDrop(ctx context.Context, name, tag string) error {
	for try := 0; ; try++ {
		if err := objects.Pause(ctx, min(try, 3)); err != nil {
			return err
		}
		o, err := r.get(ctx, name)
		if errors.Is(err, errAbsent) {
			return cas.ErrConflict
		}
		if err != nil {
			return err
		}
		body, err := r.layout.Read(name, o.data)
		if err != nil || o.tag != tag || body.Dropped == nil || r.drop.lapsed(body.Dropped, o.date) {
			return cas.ErrConflict
		}
	}
}

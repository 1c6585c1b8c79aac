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

// dropping is how a record is deleted on services whose deletes know no condition.
//
// A plain delete would be sent after a look at the record, and could arrive after somebody has been granted the key. So the look is made binding: the record is replaced, on condition
// that it is still the old one, by an announcement. The delete that follows is signed for a short time, counted from the announcement by the service's own clock: a process that was
// stopped in between, or a network that holds a request back, cannot make it arrive later, for the service refuses it then. Only when that time has passed, and a good while for the service
// to do what it had accepted, may a record be put in the announcement's place. Whoever wants the key meanwhile waits: mostly for the moment until the delete is done.
type dropping struct {
	within time.Duration // of the announcement a delete is accepted
	lapse  time.Duration // after it, none is under way any more
	// unconditional leaves the tag out of the delete, as a service does that does not know the condition: for tests of what holds even then.
	unconditional bool
}

func newDropping() dropping { return dropping{within: 10 * time.Second, lapse: 30 * time.Second} }

// lapsed reports whether what was announced can no longer be deleted.
func (d dropping) lapsed(announced *objects.Dropped, date time.Time) bool {
	return !date.Before(announced.At.Add(d.lapse))
}

// Drop announces the deletion of a version, and deletes it.
func (r *register) Drop(ctx context.Context, key string, old cas.Version) error {
	r.memory.Forget(key)
	return r.remove(ctx, r.layout.Record(key), key, string(old))
}

// bury does the same with an announcement that nobody has followed up.
func (r *register) bury(ctx context.Context, name string, o object) {
	if body, err := r.layout.Read(name, o.data); err == nil && body.Dropped != nil && !r.versioned.Load() {
		_ = r.remove(ctx, name, body.Dropped.Key, o.tag) // the next sweep meets it again
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
	// From here on nothing is remembered of the key. An announcement that stays behind is found by the next sweep.
	if r.versioned.Load() {
		// There a delete would only put a marker over the versions, and servers disagree whether an object can be created over that. The announcement is smaller than what
		// a marker hides, and gives way to the next record.
		return nil
	}
	// Signed for the time that the announcement names, however late it is. The tag is for networks that deliver a request twice: where the service knows the condition, the second copy takes nothing from
	// whoever came after the first.
	if r.drop.unconditional {
		announced = ""
	}
	if status, err := r.deleteWithin(ctx, name, announced, at, r.drop.within); err == nil && status == http.StatusNotImplemented {
		_, _ = r.deleteWithin(ctx, name, "", at, r.drop.within)
	}
	return nil
}

// deleteWithin sends a delete that the service accepts only for a short time after a moment of its own clock, and returns the status of its answer. It is sent once. tag may be empty.
func (b *bucket) deleteWithin(ctx context.Context, name, tag string, at time.Time, within time.Duration) (int, error) {
	request, err := b.signDelete(ctx, name, tag, at, within)
	if err != nil {
		return 0, err
	}
	response, err := b.client.Options().HTTPClient.Do(request)
	if err != nil {
		return 0, b.explain(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	return response.StatusCode, response.Body.Close()
}

func (b *bucket) signDelete(ctx context.Context, name, tag string, at time.Time, within time.Duration) (*http.Request, error) {
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

// signedAt signs for another time than this machine's.
type signedAt struct {
	awss3.HTTPPresignerV4
	at time.Time
}

func (s signedAt) PresignHTTP(ctx context.Context, credentials aws.Credentials, r *http.Request, payloadHash, service, region string, _ time.Time, options ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return s.HTTPPresignerV4.PresignHTTP(ctx, credentials, r, payloadHash, service, region, s.at, options...)
}

// awaitDrop waits until an announced deletion has happened or can no longer happen. Then the key is to be read again.
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

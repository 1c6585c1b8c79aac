package s3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/objects"
)

// ErrPreconditions is matched if an endpoint ignores the conditions of
// requests. Two clients could then be granted one lease, so the store is not
// opened.
var ErrPreconditions = errors.New("conditional writes are not honoured")

// PreconditionError says which condition an endpoint ignores.
type PreconditionError struct {
	// Where names the bucket and the endpoint. Condition is the tried
	// condition. Seen says what happened.
	Where, Condition, Seen string
}

func (e *PreconditionError) Error() string {
	return fmt.Sprintf("%v by %s: a request with %s %s. Two clients would be granted one lease;"+
		" use a server that honours it, or another kind of store", ErrPreconditions, e.Where, e.Condition, e.Seen)
}

// Is makes every PreconditionError match ErrPreconditions.
func (e *PreconditionError) Is(target error) bool { return target == ErrPreconditions }

// probeAge is how long a good result counts.
const probeAge = 7 * 24 * time.Hour

// probed has the buckets that this process has tried, or whose earlier result
// it has read.
var probed sync.Map

// probeResult is the result that a trial leaves in the bucket for the next
// process.
type probeResult struct {
	Croft    int       `json:"croft"`
	Endpoint string    `json:"endpoint"`
	Honoured []string  `json:"honoured"`
	At       time.Time `json:"at"` // on the service's clock
}

// conditions are tried by a probe: those of a PUT, and that the service refuses
// a DELETE after the time for which it was signed.
var conditions = []string{"If-None-Match: *", "If-Match", "X-Amz-Expires"}

// endpoint names the endpoint and the region of requests.
func (b *bucket) endpoint() string {
	o := b.client.Options()
	return aws.ToString(o.BaseEndpoint) + " " + o.Region
}

// check makes sure that this endpoint honours conditions. It does so once in a
// process. It accepts the result of an earlier trial in the bucket if that is
// not too old.
func (b *bucket) check(ctx context.Context, layout objects.Layout) error {
	id := b.endpoint() + " " + b.name
	if _, known := probed.Load(id); known {
		return nil
	}
	name := layout.Probe(b.endpoint())
	o, err := b.get(ctx, name)
	switch {
	case err == nil:
		var result probeResult
		if json.Unmarshal(o.data, &result) == nil &&
			result.Croft == objects.Format && result.Endpoint == b.endpoint() &&
			len(result.Honoured) == len(conditions) && o.date.Sub(result.At).Abs() < probeAge {
			probed.Store(id, true)
			return nil
		}
	case !errors.Is(err, errAbsent):
		return err
	}
	tried, err := b.probe(ctx, layout.Trial())
	if err != nil {
		return err
	}
	probed.Store(id, true)
	// If this fails, the next process only has to try again.
	if data, err := json.Marshal(probeResult{objects.Format, b.endpoint(), conditions, tried.date}); err == nil {
		_, _ = b.swap(ctx, name, o.tag, data)
	}
	return nil
}

// probe tries every condition that leases rely on, on an object of its own. It
// returns that object as it was read last.
func (b *bucket) probe(ctx context.Context, name string) (object, error) {
	defer b.forget(name)
	body := func() []byte { return []byte(`{"croft":1,"trial":"` + objects.NewNonce() + `"}` + "\n") }
	first, err := b.attempt(ctx, name, "", body(), true)
	if err != nil {
		return object{}, err
	}
	if _, err := b.attempt(ctx, name, "", body(), false); err != nil {
		return object{}, err
	}
	last := body()
	second, err := b.attempt(ctx, name, first, last, true)
	if err != nil {
		return object{}, err
	}
	if second == first {
		return object{}, &PreconditionError{
			b.where(), "other content",
			"got the same ETag as what it replaced, so that If-Match cannot tell them apart",
		}
	}
	if _, err := b.attempt(ctx, name, first, body(), false); err != nil {
		return object{}, err
	}
	o, err := b.get(ctx, name)
	switch {
	case err != nil:
		return object{}, err
	case !bytes.Equal(o.data, last) || o.tag != second:
		return object{}, &PreconditionError{b.where(), "If-Match", "was answered in one way and done in another"}
	}
	return o, b.tryLate(ctx, name, o.date)
}

// tryLate sends a DELETE that is an hour too late.
func (b *bucket) tryLate(ctx context.Context, name string, now time.Time) error {
	for try := 0; ; try++ {
		status, err := b.deleteWithin(ctx, name, "", now.Add(-time.Hour), time.Second)
		switch {
		case err != nil:
			return err
		case status/100 == 2:
			return &PreconditionError{
				b.where(), conditions[2],
				"was carried out an hour after its time: a lease could be deleted under its holder",
			}
		case status/100 == 4 && status != http.StatusTooManyRequests:
			return nil
		case try+1 >= tries: // a service that cannot do it has not refused it
			return fmt.Errorf("%s answers %d to a DELETE; ask again when it is well", b.where(), status)
		}
		if err := objects.Pause(ctx, try); err != nil {
			return err
		}
	}
}

// attempt writes with a condition. holds says whether the condition holds.
func (b *bucket) attempt(ctx context.Context, name, tag string, data []byte, holds bool) (string, error) {
	condition := conditions[0]
	if tag != "" {
		condition = conditions[1]
	}
	refuse := func(seen string) (string, error) { return "", &PreconditionError{b.where(), condition, seen} }
	// If the condition holds, use swap, which finds out what happened after a
	// lost reply. If it does not hold, no copy may succeed.
	put := b.put
	if holds {
		put = b.swap
	}
	for try := 0; ; try++ {
		written, err := put(ctx, name, tag, data)
		switch {
		case err == nil && !holds:
			return refuse("was carried out although the condition did not hold")
		case err == nil && written == "":
			return refuse("was answered without an ETag")
		case err == nil:
			return written, nil
		}
		status, _ := answerOf(err)
		switch f := faultOf(err); {
		case status == http.StatusNotImplemented:
			return refuse("is not implemented there")
		case errors.Is(err, errOvertaken):
			return refuse("was refused although the condition held")
		case holds:
			return "", err
		case f == overtaken:
			return "", nil
		case (f == busy || f == slow || f == unsure) && try+1 < tries && ctx.Err() == nil:
			if err := objects.Pause(ctx, try); err != nil {
				return "", err
			}
		default:
			return "", b.explain(err)
		}
	}
}

// forget removes an object whose name nobody else uses.
func (b *bucket) forget(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = b.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &b.name, Key: &name})
}

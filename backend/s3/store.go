package s3

import (
	"context"
	"fmt"
	"net/url"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
)

// Options of a store. The zero value is good.
type Options struct {
	// Prefix begins the names of the store's objects, for example "team/croft".
	// The default is the whole bucket. Stores with different prefixes share
	// nothing.
	Prefix string
	// Retention is how long the store keeps a record after its last use. The
	// default is [store.DefaultRetention].
	Retention time.Duration
	// SkipProbe opens the store without a trial of conditional writes. If the
	// endpoint does not honour them, no lease is safe.
	SkipProbe bool

	now        func() time.Time // replaces the service's clock, for tests
	sweepEvery int              // as in cas.Options, for tests
	pageSize   int32            // of listings, for tests
}

// Store keeps leases in a bucket. Its methods are safe for concurrent use, by
// any number of processes.
type Store struct {
	*cas.Store
	reg *register
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Sweeper  = (*Store)(nil)
	_ store.Examiner = (*Store)(nil)
)

// Open opens the store in a bucket. It first tries whether the endpoint honours
// conditional writes, which takes nine requests. It skips the trial if the
// bucket has passed it lately. If the endpoint fails, the error matches
// [ErrPreconditions]. Open does not change the caller's client. o may be nil.
func Open(ctx context.Context, client *awss3.Client, bucketName string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if bucketName == "" {
		return nil, fmt.Errorf("%w store: the bucket's name is empty", fence.ErrInvalid)
	}
	if o.Retention < 0 {
		return nil, fmt.Errorf("%w retention %s: it must not be negative", fence.ErrInvalid, o.Retention)
	}
	layout, err := objects.NewLayout(o.Prefix)
	if err != nil {
		return nil, err
	}
	reg := &register{
		bucket: newBucket(client, bucketName), layout: layout, drop: newDropping(), trialAge: trialAge, fake: o.now,
	}
	if o.pageSize > 0 {
		reg.pageSize = &o.pageSize
	}
	if !o.SkipProbe {
		if err := reg.check(ctx, layout); err != nil {
			return nil, unknown(err)
		}
	}
	st := cas.New(reg, &cas.Options{
		Retention: o.Retention, Parallel: 32, SweepParallel: 16, SweepEvery: o.sweepEvery,
	})
	return &Store{Store: st, reg: reg}, nil
}

func init() { store.Register("s3", openURL) }

// openURL opens s3://bucket/prefix with a client of its own.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	a, err := parse(u, "store URL", "retention")
	if err != nil {
		return nil, err
	}
	client, closeIdle, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	st, err := Open(ctx, client, a.bucket, &Options{Prefix: a.path, Retention: a.retention, SkipProbe: a.skipProbe})
	if err != nil {
		closeIdle()
		return nil, err
	}
	st.reg.own = closeIdle
	return st, nil
}

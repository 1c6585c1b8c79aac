package gcs

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
)

// Options of a store. The zero value is good.
type Options struct {
	// Connection says how to reach the bucket.
	Connection Connection
	// Retention is how long the store keeps a record after its last use. The
	// default is [store.DefaultRetention]. Use the same in all clients of one
	// store.
	Retention time.Duration
	// SkipProbe opens the store without a trial of the endpoint's conditions.
	// It is for programs that must send nothing when they open a store. An
	// endpoint that ignores conditions grants one lease to many clients.
	SkipProbe bool

	clock      func() time.Time // replaces the service's clock, in tests
	patience   time.Duration    // replaces a second, in tests
	limit      time.Duration    // between writes to an object; replaces that of the endpoint
	sweepEvery int              // as in cas.Options
}

// Store keeps leases in a bucket. Its methods are safe for concurrent use, by
// any number of processes and handles on the same prefix.
type Store struct {
	*cas.Store
	reg *register
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Sweeper  = (*Store)(nil)
	_ store.Examiner = (*Store)(nil)
)

// Open opens the store under a prefix of a bucket. The empty prefix is the
// whole bucket. The bucket must exist. If the endpoint does not honour
// conditions, the error is an [*IgnoredError]. o may be nil.
func Open(ctx context.Context, bucketName, prefix string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if o.Retention < 0 {
		return nil, fmt.Errorf("%w retention %s: it must not be negative", fence.ErrInvalid, o.Retention)
	}
	layout, err := objects.NewLayout(prefix)
	if err != nil {
		return nil, err
	}
	b, err := dial(ctx, bucketName, &o.Connection)
	if err != nil {
		return nil, err
	}
	if o.patience > 0 {
		b.patience = o.patience
	}
	reg := &register{bucket: b, layout: layout, clock: o.clock, pace: pace{every: o.limit, clock: clock.System()}}
	if o.limit == 0 {
		reg.pace.every = b.limit()
	}
	if !o.SkipProbe {
		if err := reg.probe(ctx); err != nil {
			return nil, err
		}
	}
	leases := cas.New(reg, &cas.Options{Retention: o.Retention, SweepEvery: o.sweepEvery, Parallel: atOnce})
	return &Store{Store: leases, reg: reg}, nil
}

func init() { store.Register("gs", openURL) }

const form = "write gs://BUCKET/PREFIX, with ?endpoint=, project=, retention= or probe=false if need be"

// openURL opens gs://bucket/prefix.
func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	o := &Options{}
	why := o.Connection.read(u, &o.SkipProbe, func(name, value string) (why string) {
		if name != "retention" {
			return unknownParameter(name)
		}
		var err error
		if o.Retention, err = time.ParseDuration(value); err != nil || o.Retention <= 0 {
			return fmt.Sprintf("retention %q is not a positive duration", value)
		}
		return ""
	})
	if why != "" {
		return nil, fmt.Errorf("%w store URL %q: %s; "+form, fence.ErrInvalid, store.Redact(u.String()), why)
	}
	st, err := Open(ctx, u.Host, u.Path, o)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// read reads the parameters of a URL. It handles the connection and probe
// itself, and passes all others to other. why is "" if all are good.
func (c *Connection) read(u *url.URL, skipProbe *bool, other func(name, value string) (why string)) (why string) {
	if why := misplaced(u); why != "" {
		return why
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "its query cannot be read"
	}
	for name, values := range query {
		if len(values) != 1 {
			return name + " is given twice"
		}
		switch value := values[0]; name {
		case "endpoint":
			c.Endpoint = value
		case "project":
			c.Project = value
		case "probe":
			probe, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Sprintf("probe=%q is neither true nor false", value)
			}
			*skipProbe = !probe
		default:
			if why := other(name, value); why != "" {
				return why
			}
		}
	}
	return ""
}

func unknownParameter(name string) string { return fmt.Sprintf("parameter %q is unknown", name) }

// misplaced names a part of a URL that does not belong there.
func misplaced(u *url.URL) string {
	switch {
	case u.User != nil:
		return "it names a user; credentials are found the usual way of Google's clients"
	case u.Port() != "":
		return "it names a port; name an emulator with endpoint="
	case u.Opaque != "" || u.Host == "":
		return "it names no bucket"
	case u.Fragment != "":
		return "it has a fragment"
	}
	return ""
}

package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// register is the compare-and-swap register in a bucket. The package comment says how it works and why it is safe.
type register struct {
	*bucket
	layout objects.Layout
	memory objects.Memory
	drop   dropping
	fake   func() time.Time // in place of the service's clock; nil but in tests
	own    func()           // lets go of what was opened for this register
}

var (
	_ cas.Register   = (*register)(nil)
	_ cas.Recaller   = (*register)(nil)
	_ cas.OldScanner = (*register)(nil)
)

// dying marks the version of an object whose deletion has been announced and may still happen.
const dying = "dying "

// Load reads a key's object: one request.
func (r *register) Load(ctx context.Context, key string) (cas.Entry, error) {
	name := r.layout.Record(key)
	o, err := r.get(ctx, name)
	if err != nil && !errors.Is(err, errAbsent) {
		return cas.Entry{}, err
	}
	return r.entry(name, o)
}

// entry is what an object says, and the time it was read at.
func (r *register) entry(name string, o object) (cas.Entry, error) {
	var held cas.Entry
	held.Now, held.Latest = r.clock.At(o.date)
	if o.data != nil {
		body, err := objects.Read(name, o.data)
		if err != nil {
			return cas.Entry{}, err
		}
		held.Version = cas.Version(o.tag)
		switch {
		case body.Record != nil:
			held.Record = *body.Record
			held.Latest = latest(held, o.modified)
		case !r.drop.lapsed(body.Dropped, o.date):
			held.Version = dying + held.Version
		}
	}
	if r.fake != nil {
		held.Now, held.Latest = r.fake(), time.Time{}
	}
	return held, nil
}

// latest lets nobody set an earlier deadline than somebody before: the object, or the record in it, may show that it is later than this response alone does. What is far ahead is
// left out, for a clock that was wrong and has been set right.
func latest(held cas.Entry, modified time.Time) time.Time {
	latest, limit := held.Latest, held.Latest.Add(time.Minute)
	for _, seen := range []time.Time{modified.Add(time.Second), held.Record.Renewed, held.Record.Acquired} {
		if seen.After(latest) && seen.Before(limit) {
			latest = seen
		}
	}
	return latest
}

// Recall is what this register wrote last, at the time as far as it is known without asking.
func (r *register) Recall(key string) (cas.Entry, bool) {
	rec, version, known := r.memory.Recall(key)
	if !known {
		return cas.Entry{}, false
	}
	held := cas.Entry{Record: rec, Version: version}
	if r.fake != nil {
		held.Now = r.fake()
		return held, true
	}
	held.Now, held.Latest, known = r.clock.Span()
	held.Latest = latest(held, time.Time{})
	return held, known
}

// Swap writes the next record in place of a version: one request.
func (r *register) Swap(ctx context.Context, old cas.Version, next tenure.Record, _ bool) error {
	name := r.layout.Record(next.Key)
	if tag, ok := strings.CutPrefix(string(old), dying); ok {
		return r.awaitDrop(ctx, name, tag)
	}
	data, _, err := objects.Write(next)
	if err != nil {
		return err
	}
	tag, err := r.swap(ctx, name, string(old), data)
	if err != nil {
		r.memory.Forget(next.Key)
		if errors.Is(err, errOvertaken) {
			return cas.ErrConflict
		}
		return err
	}
	r.memory.Keep(next, cas.Version(tag))
	return nil
}

// Scan reads every record: one request for a thousand names, and one for each record.
func (r *register) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return r.scan(ctx, func(object) bool { return true }, false)
}

// ScanOld reads the records that have not been written since, and deletes what has been announced and left.
func (r *register) ScanOld(ctx context.Context, before time.Time) iter.Seq2[cas.Entry, error] {
	// A moment more: an object may be dated a little earlier than the record in it.
	return r.scan(ctx, func(o object) bool { return r.fake != nil || !o.modified.After(before.Add(grain)) }, true)
}

// parallel is how many records of a listing are read at a time.
const parallel = 16

func (r *register) scan(ctx context.Context, wanted func(object) bool, bury bool) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		var failed []error
		for page, err := range r.list(ctx, r.layout.Records()) {
			if err != nil {
				yield(cas.Entry{}, err)
				return
			}
			var names []string
			for _, o := range page {
				if r.layout.IsRecord(o.name) && wanted(object{modified: o.modified}) {
					names = append(names, o.name)
				}
			}
			for _, found := range r.read(ctx, names, bury) {
				switch {
				case ctx.Err() != nil:
					yield(cas.Entry{}, context.Cause(ctx))
					return
				case found.err != nil: // reported last, so that it hides nothing
					failed = append(failed, found.err)
				case found.entry.Record.IsZero():
				case !yield(found.entry, nil):
					return
				}
			}
		}
		if len(failed) > 0 {
			yield(cas.Entry{}, errors.Join(failed...))
		}
	}
}

type found struct {
	entry cas.Entry
	err   error
}

// read reads records side by side.
func (r *register) read(ctx context.Context, names []string, bury bool) []found {
	all := make([]found, len(names))
	var group sync.WaitGroup
	places := make(chan struct{}, parallel)
	for i, name := range names {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			o, err := r.get(ctx, name)
			if errors.Is(err, errAbsent) {
				return
			}
			if err == nil {
				all[i].entry, err = r.entry(name, o)
			}
			all[i].err = err
			if held := all[i].entry; err == nil && bury && held.Record.IsZero() && held.Version != "" && !strings.HasPrefix(string(held.Version), dying) {
				r.bury(ctx, name, o)
			}
		})
	}
	group.Wait()
	return all
}

type listed struct {
	name     string
	modified time.Time
}

// list yields the objects under a prefix, page by page.
func (b *bucket) list(ctx context.Context, prefix string) iter.Seq2[[]listed, error] {
	return func(yield func([]listed, error) bool) {
		pages := awss3.NewListObjectsV2Paginator(b.client, &awss3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix})
		for pages.HasMorePages() {
			out, err := pages.NextPage(ctx)
			if err != nil {
				yield(nil, b.explain(err))
				return
			}
			page := make([]listed, len(out.Contents))
			for i, o := range out.Contents {
				page[i] = listed{aws.ToString(o.Key), aws.ToTime(o.LastModified)}
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

// Now is the service's clock, to the second.
func (r *register) Now(ctx context.Context) (time.Time, error) {
	if r.fake != nil {
		return r.fake(), nil
	}
	return r.now(ctx)
}

// Close lets go of connections that were opened for this register.
func (r *register) Close() error {
	if r.own != nil {
		r.own()
	}
	return nil
}

// String names the place for messages.
func (r *register) String() string { return fmt.Sprintf("%s, prefix %q", r.where(), r.layout.Prefix()) }

package s3

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/store/cas"
)

// Scan reads every record. It takes one request for a thousand names, and one
// for each record that has changed since this register last read it.
func (r *register) Scan(ctx context.Context) iter.Seq2[cas.Entry, error] {
	return r.scan(ctx, func(listed) bool { return true }, false)
}

// ScanOld reads the records that have not been written since before. It also
// deletes objects whose announced deletion did not happen.
func (r *register) ScanOld(ctx context.Context, before time.Time) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		r.sweepTrials(ctx)
		// A moment more, because an object may be dated a little later than
		// its record.
		r.scan(ctx, func(o listed) bool { return r.fake != nil || !o.modified.After(before.Add(grain)) }, true)(yield)
	}
}

// trialAge is the age of a trial whose process must have died.
const trialAge = time.Hour

// sweepTrials removes the objects of trials whose process died. Their names are
// used only once, so it cannot remove anything else. It ignores errors, because
// the next sweep tries again.
func (r *register) sweepTrials(ctx context.Context) {
	for page, err := range r.list(ctx, r.layout.Prefix()+"probes/trial-") {
		if err != nil {
			return
		}
		for _, o := range page {
			if o.date.Sub(o.modified) > r.trialAge {
				_, _ = r.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &r.name, Key: &o.name})
			}
		}
	}
}

// parallel is how many records of a listing are read at once.
const parallel = 16

// scan yields the records of the wanted objects. It reports errors last. If
// finish is set, it also finishes announced deletions.
func (r *register) scan(ctx context.Context, wanted func(listed) bool, finish bool) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		var failed failures.List
		for page, err := range r.list(ctx, r.layout.Records()) {
			if err != nil {
				yield(cas.Entry{}, err)
				return
			}
			var records []listed
			for _, o := range page {
				if r.layout.IsRecord(o.name) && wanted(o) {
					records = append(records, o)
				}
			}
			for _, found := range r.read(ctx, records, finish) {
				switch {
				case ctx.Err() != nil:
					yield(cas.Entry{}, context.Cause(ctx))
					return
				case found.err != nil: // reported last, so that it hides no record
					failed.Add(found.err)
				case found.entry.Record.IsZero():
				case !yield(found.entry, nil):
					return
				}
			}
		}
		if err := failed.Err(); err != nil {
			yield(cas.Entry{}, err)
		}
	}
}

type found struct {
	entry cas.Entry
	err   error
}

// read reads records in parallel.
func (r *register) read(ctx context.Context, records []listed, finish bool) []found {
	all := make([]found, len(records))
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, it := range records {
		data := r.bodies.Known(it.name, it.tag)
		if data != nil {
			o := object{data: data, tag: it.tag, date: it.date, modified: it.modified}
			all[i].entry, all[i].err = r.entry(it.name, o)
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			o, err := r.get(ctx, it.name)
			if errors.Is(err, errAbsent) {
				return
			}
			if err == nil {
				all[i].entry, err = r.entry(it.name, o)
			}
			if all[i].err = err; err == nil && !all[i].entry.Record.IsZero() {
				r.bodies.Keep(it.name, o.tag, o.data)
			}
			if held := all[i].entry; err == nil && finish && held.Record.IsZero() &&
				held.Version != "" && !strings.HasPrefix(string(held.Version), dropPending) {
				r.finishDrop(ctx, it.name, o)
			}
		})
	}
	group.Wait()
	return all
}

// listed is one object of a listing. date is when the listing was made.
type listed struct {
	name, tag      string
	modified, date time.Time
}

// list yields the objects under a prefix, page by page.
func (b *bucket) list(ctx context.Context, prefix string) iter.Seq2[[]listed, error] {
	return func(yield func([]listed, error) bool) {
		pages := awss3.NewListObjectsV2Paginator(b.client,
			&awss3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, MaxKeys: b.pageSize})
		for pages.HasMorePages() {
			out, err := pages.NextPage(ctx)
			if err != nil {
				yield(nil, b.explain(err))
				return
			}
			date, known := dateIn(out.ResultMetadata)
			if !known {
				yield(nil, errNoDate)
				return
			}
			page := make([]listed, len(out.Contents))
			for i, o := range out.Contents {
				page[i] = listed{aws.ToString(o.Key), aws.ToString(o.ETag), aws.ToTime(o.LastModified), date}
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/fence"
)

// The permissions that requests need.
const (
	rightGet    = "storage.objects.get"
	rightList   = "storage.objects.list"
	rightCreate = "storage.objects.create and storage.objects.delete (replacing needs both)"
	rightUpdate = "storage.objects.update"
	rightDelete = "storage.objects.delete"
)

// errMismatch: the condition of a write did not hold, so it changed nothing.
var errMismatch = errors.New("the object has changed")

// errEclipsed is an errMismatch of a write that may have taken effect before
// another followed.
var errEclipsed = fmt.Errorf("the reply was lost, and now %w", errMismatch)

// content is an object as it was read. Its generation is 0 if there is none.
type content struct {
	data       []byte
	generation int64
}

// get reads a small object.
func (b *bucket) get(ctx context.Context, name string) (content, error) {
	for try := 1; ; try++ {
		c, err := b.getOnce(ctx, name)
		switch v := judge(err); {
		case v == done:
			return c, nil
		case v == missing:
			return content{}, b.gone(err)
		case !b.again(ctx, v, try):
			return content{}, b.explain(ctx, rightGet, err)
		}
	}
}

// gone returns nil if only the object is missing, which is no error. It returns
// an error if the bucket is missing.
func (b *bucket) gone(err error) error {
	if bucketMissing(err) {
		return b.noBucket()
	}
	return nil
}

// errNoBucket is in the error of requests to a bucket that does not exist.
var errNoBucket = errors.New("there is no such bucket")

func (b *bucket) noBucket() error {
	return fmt.Errorf("gcs: %w as %s; make it, or mend the name", errNoBucket, b.name)
}

// put replaces the generation old of a small object, or creates it if old is 0.
// It returns the new generation.
//
// It returns errMismatch if it changed nothing. It returns errEclipsed if it
// may have taken effect before another write followed. After any other error it
// may have taken effect, or may do so later. data must differ from all earlier
// content, because put finds its write by it after a lost reply.
//
// If the object is a key's record, put stores the key in the metadata, so that
// listings can tell whose it is.
func (b *bucket) put(ctx context.Context, name string, old int64, data []byte, key string) (int64, error) {
	return b.putWithin(ctx, mostWaits, name, old, data, key)
}

// putWithin is put with a limit on how often it is sent if the service asks to
// wait.
func (b *bucket) putWithin(
	ctx context.Context, waits int, name string, old int64, data []byte, key string,
) (int64, error) {
	doubt := false // a copy may have taken effect
	for try := 1; ; try++ {
		generation, err := b.putOnce(ctx, name, old, data, key)
		v := judge(err)
		if v == missing && old != 0 && !bucketMissing(err) {
			v = mismatch // the object was deleted meanwhile
		}
		switch {
		case v == done:
			return generation, nil
		case v == mismatch && !doubt:
			return 0, errMismatch
		case v == mismatch: // perhaps because of a copy of this very write
			now, err := b.get(ctx, name)
			switch {
			case err != nil:
				return 0, err
			case bytes.Equal(now.data, data):
				return now.generation, nil
			}
			return 0, errEclipsed
		case v == missing:
			return 0, b.noBucket()
		case v == throttled && try >= waits, !b.again(ctx, v, try):
			return 0, b.explain(ctx, rightCreate, err)
		default:
			doubt = doubt || v == doubtful
		}
	}
}

// metaKey is the name of the record's key in the metadata. The key is escaped,
// because metadata should be ASCII.
const metaKey = "croft-key"

func (b *bucket) putOnce(ctx context.Context, name string, old int64, data []byte, key string) (int64, error) {
	o := &storage.Object{Name: name, ContentType: "application/json", CacheControl: "no-store"}
	if key != "" {
		o.Metadata = map[string]string{metaKey: fence.EscapeKey(key)}
	}
	made, err := b.insert(ctx, o, data, &condition{generation: old})
	if err != nil {
		return 0, err
	}
	return made.Generation, nil
}

// remove deletes a generation of an object. It is for objects that nobody
// needs: nothing depends on the condition being honoured.
func (b *bucket) remove(ctx context.Context, name string, generation int64) error {
	for try := 1; ; try++ {
		err := b.delete(ctx, name, &condition{generation: generation})
		switch v := judge(err); {
		case v == done || v == missing:
			return nil
		case v == mismatch:
			return errMismatch
		case !b.again(ctx, v, try):
			return b.explain(ctx, rightDelete, err)
		}
	}
}

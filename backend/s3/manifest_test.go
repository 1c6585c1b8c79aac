package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// simple is the obvious design: the mark is metadata of the object, and a write
// is conditional on the ETag that was read with it. It shows why the guard has
// another design.
type simple struct {
	*bucket
	key  string
	seen func() // runs after the HEAD, before the PUT
}

func (s simple) mark(ctx context.Context) (fence.Mark, string, error) {
	out, err := s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.name, Key: &s.key})
	if err != nil {
		return fence.Mark{}, "", err
	}
	was, err := fence.ParseStamp(out.Metadata["mark"])
	return was.Mark(), aws.ToString(out.ETag), err
}

func (s simple) write(ctx context.Context, stamp fence.Stamp, text string) error {
	in := &awss3.PutObjectInput{Bucket: &s.name, Key: &s.key, Body: strings.NewReader(text), Metadata: map[string]string{"mark": stamp.String()}}
	if mark, tag, err := s.mark(ctx); err == nil {
		if _, err := mark.Admit(stamp); err != nil {
			return err
		}
		in.IfMatch = &tag
	} else {
		in.IfNoneMatch = aws.String("*")
	}
	if s.seen != nil {
		s.seen()
	}
	_, err := s.client.PutObject(ctx, in, noRetry)
	return err
}

// raise writes the same content with another mark.
func (s simple) raise(ctx context.Context, stamp fence.Stamp) error {
	data, _, err := plain(ctx, s.client, s.name, s.key)
	if err != nil {
		return err
	}
	return s.write(ctx, stamp, string(data))
}

// TestARaiseBetweenAStaleWritersLookAndItsWrite is the race that rules out
// simpler designs. Neither a raise nor a rewrite of identical bytes changes an
// ETag. So a stale writer's PUT with If-Match still finds the ETag that it has
// read.
func TestARaiseBetweenAStaleWritersLookAndItsWrite(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, ctx := dial(server), t.Context()
	for _, overtake := range []string{"a raise", "a rewrite of identical bytes"} {
		t.Run(overtake, func(t *testing.T) {
			key := objectName(server)
			if err := overtakenBy(t, server, key, overtake); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the stale write: %v, want stale", err)
			}
			newer := openGuard(t, server, client, key)
			if got, _, err := content(ctx, newer); err != nil || string(got) != "content" {
				t.Errorf("the content is %q, %v", got, err)
			}
			if names := payloads(t, newer); len(names) != 1 {
				t.Errorf("the refused write left %q", names)
			}
			// The same guard without its condition.
			if err := overtakenBy(t, server, objectName(server), overtake, "If-Match"); err != nil {
				t.Errorf("without If-Match the stale write is refused (%v): the test shows nothing", err)
			}
			// The simple design, in the same interleaving.
			old := simple{bucket: newBucket(client, server.Bucket), key: key + ".simple"}
			if err := old.write(ctx, stamp(10, 1, 0), "content"); err != nil {
				t.Fatal(err)
			}
			late := old
			late.seen = func() {
				if err := old.raise(ctx, stamp(11, 2, 0)); err != nil {
					t.Error(err)
				}
			}
			if err := late.write(ctx, stamp(10, 1, 0), "stale"); err != nil {
				t.Errorf("the simple design refused a stale write (%v): the test shows nothing", err)
			}
		})
	}
}

// overtakenBy lets a newer owner act between a stale writer's look at the
// manifest and its commit. It returns the stale writer's error. strip names
// conditions that its writes lose on the way.
func overtakenBy(t *testing.T, server *testenv.S3Server, key, overtake string, strip ...string) error {
	t.Helper()
	ctx, gate := t.Context(), newGateway(t, server)
	gate.strip = strip
	stale, err := OpenGuard(ctx, gate.client(server), server.Bucket, key, &GuardOptions{SkipProbe: true})
	if err != nil {
		t.Fatal(err)
	}
	newer := openGuard(t, server, dial(server), key)
	if err := write(ctx, newer, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	var first sync.Once
	gate.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, manifestSuffix) {
			first.Do(func() {
				var err error
				if overtake == "a raise" {
					_, err = newer.Raise(ctx, stamp(11, 2, 0))
				} else {
					err = write(ctx, newer, stamp(11, 2, 0), "content")
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		return 0, false
	})
	return write(ctx, stale, stamp(10, 1, 0), "stale")
}

// TestTheLastCopyIsTheNewestContent: the copies of several writers arrive in
// any order, and each writer looks again.
func TestTheLastCopyIsTheNewestContent(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, key, ctx := dial(server), objectName(server), t.Context()
	// The slow writer's copy arrives after that of a newer writer.
	gate := newGateway(t, server)
	slow, newer := openGuard(t, server, gate.client(server), key), openGuard(t, server, client, key)
	var first sync.Once
	gate.set(func(r *http.Request) (int, bool) {
		if r.Header.Get("X-Amz-Copy-Source") != "" {
			first.Do(func() {
				if err := write(ctx, newer, stamp(11, 2, 0), "newer"); err != nil {
					t.Error(err)
				}
			})
		}
		return 0, false
	})
	if err := write(ctx, slow, stamp(10, 1, 0), "slow"); err != nil {
		t.Errorf("the slow write was committed before the newer one: %v", err)
	}
	if got, _, err := plain(ctx, client, server.Bucket, key); err != nil || string(got) != "newer" {
		t.Errorf("the plain copy is %q, %v", got, err)
	}
	// Many writers at once.
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			s := stamp(fence.Token(20+i), i, 0)
			if err := write(ctx, openGuard(t, server, client, key), s, fmt.Sprintf("of token %d", s.Token)); err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want, _, _ := content(ctx, newer)
	if got, _, err := plain(ctx, client, server.Bucket, key); err != nil || string(got) != string(want) || string(got) != "of token 31" {
		t.Errorf("the plain copy is %q, the content %q, %v", got, want, err)
	}
	// The copy was never made.
	if _, err := client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &server.Bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	if err := newer.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := plain(ctx, client, server.Bucket, key); string(got) != string(want) {
		t.Errorf("after a refresh the plain copy is %q", got)
	}
}

// TestASweepRemovesWhatDeadWritersLeft: and nothing else. A writer that the
// sweep took for dead cannot commit.
func TestASweepRemovesWhatDeadWritersLeft(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, key, ctx := dial(server), objectName(server), t.Context()
	g := openGuard(t, server, client, key)
	g.partSize = 5 << 20
	if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	// One writer died during its upload, and one before its commit.
	dead := g.key + payloadFolder + "dead"
	neighbour := key + " and more"
	for _, name := range []string{dead, key, neighbour} { // a payload, the plain copy, another object
		if _, err := client.CreateMultipartUpload(ctx, &awss3.CreateMultipartUploadInput{Bucket: &server.Bucket, Key: &name}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.upload(ctx, stamp(11, 2, 0), strings.NewReader("never committed")); err != nil {
		t.Fatal(err)
	}
	if n, err := g.Sweep(ctx); n != 0 || err != nil {
		t.Errorf("%d removed that are not a day old, %v", n, err)
	}
	// One writer is stopped between its upload and its commit, for longer than
	// the sweep waits.
	gate := newGateway(t, server)
	stopped := openGuard(t, server, gate.client(server), key)
	stopped.leftoverAge, g.leftoverAge = time.Second, time.Second
	var first sync.Once
	gate.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, manifestSuffix) {
			first.Do(func() {
				if names := payloads(t, g); len(names) != 3 {
					t.Errorf("before the sweep there are %q", names)
				}
				testenv.Eventually(t, "all that is left behind is removed", func() error {
					if _, err := g.Sweep(ctx); err != nil {
						return err
					}
					if names := payloads(t, g); len(names) != 1 {
						return fmt.Errorf("%q are left", names)
					}
					return nil
				})
			})
		}
		return 0, false
	})
	err := write(ctx, stopped, stamp(12, 3, 0), "too late")
	if err == nil {
		t.Error("a write that was taken for dead has been committed")
	}
	if got, _, err := content(ctx, g); err != nil || string(got) != "content" {
		t.Errorf("the content is %q, %v", got, err)
	}
	uploads, err := client.ListMultipartUploads(ctx, &awss3.ListMultipartUploadsInput{Bucket: &server.Bucket, Prefix: aws.String(g.key)})
	if err != nil || len(uploads.Uploads) != 1 || *uploads.Uploads[0].Key != neighbour {
		t.Errorf("%d uploads are left, %v; want the neighbour's alone", len(uploads.Uploads), err)
	}
}

// ending calls last after it has yielded its text.
type ending struct {
	text string
	last func()
}

func (e *ending) Read(buf []byte) (int, error) {
	if e.text == "" {
		e.last()
		return 0, io.EOF
	}
	n := copy(buf, e.text)
	e.text = e.text[n:]
	return n, nil
}

// TestAnAbortedUploadLeavesNothing: neither after a reader that breaks in the
// middle of a large upload, nor after a refusal at its end.
func TestAnAbortedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, ctx := dial(server), t.Context()
	g := openGuard(t, server, client, objectName(server))
	g.partSize = 5 << 20
	if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 11<<20)
	broken := errors.New("the source broke")
	if _, err := g.Write(ctx, stamp(11, 2, 0), io.MultiReader(strings.NewReader(large), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a source that breaks: %v", err)
	}
	_, err := g.Write(ctx, stamp(11, 2, 0), &ending{text: large, last: func() {
		if _, err := g.Raise(ctx, stamp(12, 3, 0)); err != nil {
			t.Error(err)
		}
	}})
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("overtaken at the end: %v, want stale", err)
	}
	if names := payloads(t, g); len(names) != 1 {
		t.Errorf("beside the manifest there are %q", names)
	}
	uploads, err := client.ListMultipartUploads(ctx, &awss3.ListMultipartUploadsInput{Bucket: &server.Bucket, Prefix: aws.String(g.key + payloadFolder)})
	if err != nil || len(uploads.Uploads) != 0 {
		t.Errorf("%d uploads are left, %v", len(uploads.Uploads), err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestAServerKilledDuringAnUploadKeepsTheOldContent: and the writer gets an
// unknown outcome.
func TestAServerKilledDuringAnUploadKeepsTheOldContent(t *testing.T) {
	t.Parallel()
	server := testenv.S3Alone(t)
	client, ctx := dial(server), t.Context()
	g := openGuard(t, server, client, objectName(server))
	g.partSize = 5 << 20
	if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	part := strings.Repeat("x", g.partSize)
	_, err := g.Write(ctx, stamp(11, 2, 0), io.MultiReader(strings.NewReader(part+part), &ending{text: part, last: server.Kill}))
	if !errors.Is(err, store.ErrUnknown) {
		t.Errorf("the write: %v, want unknown", err)
	}
	server.Restart(t)
	if got, _, err := content(ctx, g); err != nil || string(got) != "content" {
		t.Errorf("the content is %d bytes, %v", len(got), err)
	}
	if err := write(ctx, g, stamp(11, 2, 0), "next"); err != nil {
		t.Errorf("the same owner, once the server is back: %v", err)
	}
}

func TestAWriteSweepsNowAndThen(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g, ctx := openGuard(t, server, dial(server), objectName(server)), t.Context()
	if _, err := g.upload(ctx, stamp(9, 1, 0), strings.NewReader("never committed")); err != nil {
		t.Fatal(err)
	}
	g.sweepOneIn, g.leftoverAge = 1, 2*time.Second
	testenv.Eventually(t, "the leftover is gone", func() error {
		if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
			return err
		}
		if names := payloads(t, g); len(names) != 1 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
}

package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestAWriteThatMayHaveBeenFollowedIsNotMadeAgain: the next write has removed
// its payload, so a manifest that names it again would name nothing. The write
// is not reported as refused either: it was made, and it counted.
func TestAWriteThatMayHaveBeenFollowedIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	mine := stamp(10, 1, 0) // unnumbered: its owner may write again and again
	for name, next := range map[string]fence.Stamp{"by its owner": mine, "by a newer owner": stamp(11, 2, 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.S3(t)
			gate, key, ctx := newGateway(t, server), objectName(server), t.Context()
			g, near := openGuard(t, server, gate.client(server), key), openGuard(t, server, dial(server), key)
			isCommit := func(r *http.Request) bool {
				return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, manifestSuffix)
			}
			var followed sync.Once
			gate.after = func(r *http.Request) {
				if isCommit(r) {
					followed.Do(func() {
						if err := write(ctx, near, next, "second"); err != nil {
							t.Error(err)
						}
					})
				}
			}
			var err error
			gate.during(nth(1, 0, true, isCommit), func() { err = write(ctx, g, mine, "first") })
			if !errors.Is(err, store.ErrUnknown) || errors.Is(err, fence.ErrStale) {
				t.Errorf("the write whose reply was lost: %v, want unknown and nothing else", err)
			}
			if got, _, err := content(ctx, near); err != nil || string(got) != "second" {
				t.Errorf("the content is %q, %v", got, err)
			}
		})
	}
}

// TestALostReplyAtTheEndOfALargeUpload: the guard looks for the object to find
// out what happened.
func TestALostReplyAtTheEndOfALargeUpload(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	gate, ctx := newGateway(t, server), t.Context()
	g := openGuard(t, server, gate.client(server), objectName(server))
	g.partSize, g.noCopy = 5<<20, true
	large := bytes.Repeat([]byte("x"), g.partSize+1)
	gate.code = "NoSuchUpload" // some servers forget an upload when it is complete
	var asked atomic.Int64
	gate.during(func(r *http.Request) (int, bool) {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") {
			return 0, false
		}
		if asked.Add(1) == 1 {
			return 0, true
		}
		return http.StatusNotFound, false
	}, func() {
		if receipt, err := g.Write(ctx, stamp(10, 1, 0), bytes.NewReader(large)); err != nil || receipt.Bytes != int64(len(large)) {
			t.Errorf("%+v, %v", receipt, err)
		}
	})
	if got, _, err := content(ctx, g); err != nil || !bytes.Equal(got, large) {
		t.Errorf("the content is %d bytes, %v", len(got), err)
	}
}

// TestASourceThatIsCutShortIsNotTakenForWhole: a broken download ends
// with io.ErrUnexpectedEOF, not with io.EOF.
func TestASourceThatIsCutShortIsNotTakenForWhole(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g, ctx := openGuard(t, server, dial(server), objectName(server)), t.Context()
	g.partSize = 5 << 20
	if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 10, g.partSize, g.partSize + 10} {
		source := io.MultiReader(strings.NewReader(strings.Repeat("x", size)), failing{io.ErrUnexpectedEOF})
		if _, err := g.Write(ctx, stamp(10, 1, 0), source); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut short after %d bytes: %v", size, err)
		}
	}
	if got, _, err := content(ctx, g); err != nil || string(got) != "content" {
		t.Errorf("the content is %d bytes, %v", len(got), err)
	}
}

// TestADeleteThatIsDeliveredTwiceTakesNothingFromANewHolder: this holds if the
// service knows the condition, as Amazon and the test server do.
func TestADeleteThatIsDeliveredTwiceTakesNothingFromANewHolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ctx, mine := t.Context(), claim("drop/k", "bob")
	s.old(mine.Key)
	s.slow.set(func(r *http.Request) (int, bool) {
		if r.Method != http.MethodDelete {
			return 0, false
		}
		first := r.Clone(ctx)
		first.RequestURI, first.URL.Scheme, first.URL.Host = "", "http", strings.TrimPrefix(testenv.S3(t).Endpoint, "http://")
		response, err := http.DefaultClient.Do(first)
		if err != nil || response.StatusCode/100 != 2 {
			t.Errorf("the first copy: %v, %v", response, err)
			return 0, false
		}
		response.Body.Close()
		s.must(one(ctx, s.bob, mine))
		return 0, false // passes on the second DELETE
	})
	if _, err := s.ann.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if err := owned(ctx, s.bob, mine); err != nil {
		t.Errorf("the record was dropped under its holder: %v", err)
	}
}

// TestADeleteIsSentAgainWithoutAnUnknownCondition: if a service refuses the
// condition, the DELETE is sent without it.
func TestADeleteIsSentAgainWithoutAnUnknownCondition(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.old("drop/k")
	s.slow.code = "NotImplemented"
	s.slow.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodDelete && r.Header.Get("If-Match") != "" {
			return http.StatusNotImplemented, false
		}
		return 0, false
	})
	if n, err := s.ann.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("%d dropped, %v", n, err)
	}
	if names := s.objects(); len(names) != 0 {
		t.Errorf("%q are left", names)
	}
}

// TestAFaultDuringTheProbeIsNoVerdict: after a lost reply or in a busy moment
// the probe does not claim that an endpoint ignores conditions. And it does not
// pass an endpoint that cannot delete at all.
func TestAFaultDuringTheProbeIsNoVerdict(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	trial := func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/trial-") && r.Method == http.MethodPut
	}
	for name, fault := range faults {
		if fault.status == http.StatusPreconditionFailed {
			continue // this status is a verdict
		}
		for step := 1; step <= 4; step++ {
			t.Run(fmt.Sprintf("%s at write %d", name, step), func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, server)
				g.set(nth(step, fault.status, fault.lost, trial))
				if st, err := Open(t.Context(), g.client(server), server.Bucket, &Options{Prefix: server.Prefix()}); err != nil {
					t.Error(err)
				} else {
					st.Close()
				}
			})
		}
	}
	t.Run("deletes are not answered", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, server)
		asked := 0
		g.set(func(r *http.Request) (int, bool) {
			if r.Method == http.MethodDelete && r.URL.Query().Has("X-Amz-Expires") {
				asked++
				return http.StatusServiceUnavailable, false
			}
			return 0, false
		})
		_, err := Open(t.Context(), g.client(server), server.Bucket, &Options{Prefix: server.Prefix()})
		if !errors.Is(err, store.ErrUnknown) || errors.Is(err, ErrPreconditions) || asked < 2 {
			t.Errorf("%v after %d deletes, want unknown", err, asked)
		}
	})
}

// TestAnEmptyArtifactIsContent: empty content is content like any other.
func TestAnEmptyArtifactIsContent(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, key, ctx := dial(server), objectName(server), t.Context()
	g := openGuard(t, server, client, key)
	g.partSize = 5 << 20
	for token, size := range []int{0, g.partSize} { // empty, and exactly one part
		want := strings.Repeat("x", size)
		if err := write(ctx, g, stamp(10, 1, uint64(token+1)), want); err != nil {
			t.Fatal(err)
		}
		got, there, err := content(ctx, g)
		if err != nil || !there || string(got) != want {
			t.Errorf("%d bytes, %v; want %d", len(got), err, size)
		}
		out, err := client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &server.Bucket, Key: &key})
		if err != nil {
			t.Fatal(err)
		}
		if copied, err := io.ReadAll(out.Body); err != nil || string(copied) != want {
			t.Errorf("the copy is %d bytes, %v; want %d", len(copied), err, size)
		}
		out.Body.Close()
	}
}

// TestARekeyThatMayHaveBeenFollowedIsNotMadeAgain: a second rekey would shut
// out an owner that has come to the new key since. It would also lose the
// object's old key.
func TestARekeyThatMayHaveBeenFollowedIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	gate, key, ctx := newGateway(t, server), objectName(server), t.Context()
	g, near := openGuard(t, server, gate.client(server), key), openGuard(t, server, dial(server), key)
	before, after := stamp(10, 1, 0), stamp(20, 2, 0)
	after.Key = "tests/elsewhere"
	if _, err := near.Raise(ctx, before); err != nil {
		t.Fatal(err)
	}
	isCommit := func(r *http.Request) bool { return r.Method == http.MethodPut }
	var followed sync.Once
	gate.after = func(*http.Request) {
		followed.Do(func() {
			if _, err := near.Raise(ctx, after); err != nil {
				t.Error(err)
			}
		})
	}
	var err error
	gate.during(nth(1, 0, true, isCommit), func() { _, err = g.Rekey(ctx, after.Key, "ann", "the job was split") })
	if err != nil {
		t.Error(err)
	}
	if mark, err := near.Mark(ctx); err != nil || mark != after.Mark() {
		t.Errorf("the mark is %+v, %v, want the new owner's", mark, err)
	}
	if r, err := near.Rekeyed(ctx); err != nil || r.From != before.Key {
		t.Errorf("it came from %q, %v, want %q", r.From, err, before.Key)
	}
}

// caching is a client behind a cache that answers with responses of a minute
// ago.
type caching struct {
	next awss3.HTTPClient
	on   atomic.Bool
}

func (c *caching) Do(request *http.Request) (*http.Response, error) {
	response, err := c.next.Do(request)
	if err == nil && c.on.Load() && request.Method == http.MethodGet {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			response.Header.Set("Date", date.Add(-time.Minute).Format(http.TimeFormat))
		}
		response.Header.Set("Age", "60")
	}
	return response, err
}

// TestACachedResponseTellsNoTime: otherwise a lease would end before its
// holder believes.
func TestACachedResponseTellsNoTime(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	cache := &caching{}
	st := open(t, server, dial(server, func(o *awss3.Options) { cache.next, o.HTTPClient = o.HTTPClient, cache }), Options{})
	cache.on.Store(true)
	if a := one(t.Context(), st, claim("cached/k", "ann")); !errors.Is(a.Err, store.ErrUnknown) || !strings.Contains(a.Err.Error(), "cache") {
		t.Errorf("granted until %s, at %s by a minute-old answer: %v, want unknown", a.Record.Deadline, a.Now, a.Err)
	}
}

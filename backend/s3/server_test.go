package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// TestTheTestServerHonoursConditions checks the server on which all other tests
// run: of many writers with one condition, exactly one succeeds.
func TestTheTestServerHonoursConditions(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	b, ctx := newBucket(dial(server), server.Bucket), t.Context()
	for round := range 20 {
		name, tag := fmt.Sprintf("%s/race-%d", server.Prefix(), round), ""
		for _, condition := range conditions[:2] {
			var winners atomic.Int64
			var won atomic.Value
			var all sync.WaitGroup
			start := make(chan struct{})
			for range 16 {
				all.Go(func() {
					<-start
					written, err := b.put(ctx, name, tag, []byte(objects.NewNonce()))
					switch {
					case err == nil:
						winners.Add(1)
						won.Store(written)
					case faultOf(err) != overtaken && faultOf(err) != busy:
						t.Errorf("%s: %v", condition, err)
					}
				})
			}
			close(start)
			all.Wait()
			if n := winners.Load(); n != 1 {
				t.Fatalf("round %d: %d of 16 writes with %s succeeded", round, n, condition)
			}
			tag = won.Load().(string)
		}
	}
}

// TestTheProbeRefusesAnEndpointThatIgnoresConditions: and says which condition.
func TestTheProbeRefusesAnEndpointThatIgnoresConditions(t *testing.T) {
	t.Parallel()
	for header, condition := range map[string]string{"If-None-Match": "If-None-Match: *", "If-Match": "If-Match"} {
		server := testenv.S3(t)
		g := newGateway(t, server)
		g.strip = []string{header}
		bad := g.client(server)
		_, err := Open(t.Context(), bad, server.Bucket, &Options{Prefix: server.Prefix()})
		var refused *PreconditionError
		if !errors.As(err, &refused) || refused.Condition != condition || !strings.Contains(err.Error(), g.URL) || errors.Is(err, store.ErrUnknown) {
			t.Errorf("without %s: %v", header, err)
		}
		if _, err := OpenGuard(t.Context(), bad, server.Bucket, server.Prefix()+"/x", nil); !errors.Is(err, ErrPreconditions) {
			t.Errorf("a guard without %s: %v", header, err)
		}
		st, err := Open(t.Context(), bad, server.Bucket, &Options{Prefix: server.Prefix(), SkipProbe: true})
		if err != nil {
			t.Errorf("skipping the probe: %v", err)
		} else {
			st.Close()
		}
	}
}

// TestTheProbeRefusesAnEndpointThatCarriesOutLateDeletes: sweeps rely on the
// refusal.
func TestTheProbeRefusesAnEndpointThatCarriesOutLateDeletes(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	near := dial(server)
	g := newGateway(t, server)
	g.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodDelete && r.URL.Query().Has("X-Amz-Expires") { // with credentials of its own
			name := strings.TrimPrefix(r.URL.Path, "/"+server.Bucket+"/")
			if _, err := near.DeleteObject(r.Context(), &awss3.DeleteObjectInput{Bucket: &server.Bucket, Key: &name}); err != nil {
				t.Error(err)
			}
			return http.StatusNoContent, false
		}
		return 0, false
	})
	_, err := Open(t.Context(), g.client(server), server.Bucket, &Options{Prefix: server.Prefix()})
	var refused *PreconditionError
	if !errors.As(err, &refused) || refused.Condition != "X-Amz-Expires" {
		t.Errorf("%v", err)
	}
}

// TestTheProbeRunsOnce: a process that opens the same bucket again sends
// nothing. The next process sends one request.
func TestTheProbeRunsOnce(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	client := g.client(server)
	for _, want := range []struct {
		name string
		most int
	}{{"the first", 9}, {"again", 0}, {"another process", 1}} {
		g.requests()
		if want.name == "another process" {
			b := newBucket(client, server.Bucket)
			probed.Delete(b.endpoint() + " " + b.name)
		}
		open(t, server, client, Options{})
		if asked := g.requests(); len(asked) > want.most {
			t.Errorf("%s: %d requests, want at most %d: %q", want.name, len(asked), want.most, asked)
		}
	}
}

// TestOpeningSaysWhatIsWrong: with the credentials, the bucket or the region,
// and what to do.
func TestOpeningSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	ctx := t.Context()
	for name, c := range map[string]struct {
		open func() (*Store, error)
		want error
		says string
	}{
		"a wrong secret": {func() (*Store, error) {
			wrong := *server
			wrong.SecretKey = "wrong"
			return Open(ctx, newGateway(t, server).client(&wrong), server.Bucket, nil)
		}, ErrDenied, "credentials"},
		"no such bucket": {func() (*Store, error) { return Open(ctx, dial(server), "no-such-bucket", nil) }, ErrNoBucket, "no-such-bucket"},
		"another region": {func() (*Store, error) {
			g := newGateway(t, server)
			g.code, g.header = "PermanentRedirect", map[string]string{"X-Amz-Bucket-Region": "eu-central-1"}
			g.set(func(*http.Request) (int, bool) { return http.StatusMovedPermanently, false })
			return Open(ctx, g.client(server), server.Bucket, nil)
		}, ErrRegion, "?region=eu-central-1"},
		"a region in the signature": {func() (*Store, error) {
			g := newGateway(t, server)
			g.code = "AuthorizationHeaderMalformed"
			g.set(func(*http.Request) (int, bool) { return http.StatusBadRequest, false })
			return Open(ctx, g.client(server), server.Bucket, nil)
		}, ErrRegion, "us-east-1"},
		"a clock that is off": {func() (*Store, error) {
			g := newGateway(t, server)
			g.code, g.header = "RequestTimeTooSkewed", map[string]string{"Date": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}
			g.set(func(*http.Request) (int, bool) { return http.StatusForbidden, false })
			return Open(ctx, g.client(server), server.Bucket, nil)
		}, ErrClock, "NTP"},
		"no rights": {func() (*Store, error) {
			g := newGateway(t, server)
			g.set(func(*http.Request) (int, bool) { return http.StatusForbidden, false })
			return Open(ctx, g.client(server), server.Bucket, nil)
		}, ErrDenied, "s3:ListBucket"},
		"nobody there": {func() (*Store, error) {
			nobody := *server
			nobody.Endpoint = "http://127.0.0.1:1"
			return Open(ctx, dial(&nobody), server.Bucket, nil)
		}, store.ErrUnknown, "reached"},
	} {
		st, err := c.open()
		if err == nil {
			st.Close()
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAHangingServerHoldsNobodyUp: calls return when their context ends.
func TestAHangingServerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	server := testenv.S3Alone(t)
	st := open(t, server, dial(server), Options{})
	server.Pause(t)
	var mine tenure.Request
	for n := 0; ; n++ { // the signal needs a moment
		mine = claim(fmt.Sprintf("hang/%d", n), "ann")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		a := one(ctx, st, mine)
		if a.Err == nil {
			continue
		}
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, context.Canceled) {
			t.Errorf("cancelled while the server hangs: %v", a.Err)
		}
		break
	}
	server.Resume()
	if a := storetest.Resolve(t.Context(), st, mine); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("asked again: %v in term %d, want the one grant", a.Err, a.Record.Terms)
	}
}

package s3

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/test/objectstest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/store/storetest"
)

// In these tests a neighbour may write to some objects of the bucket. It must
// not be able to use the rights of others on the rest.

// plant puts an object into the bucket, as the neighbour can.
func plant(tb testing.TB, server *testenv.S3Server, name string, data []byte, change ...func(*awss3.PutObjectInput)) {
	tb.Helper()
	in := &awss3.PutObjectInput{Bucket: &server.Bucket, Key: &name, Body: bytes.NewReader(data)}
	for _, c := range change {
		c(in)
	}
	if _, err := dial(server).PutObject(tb.Context(), in); err != nil {
		tb.Fatal(err)
	}
}

// TestAPlantedManifestIsNoOrder: a writer deletes the payload that it replaces,
// and a reader reads the payload that the manifest names. A planted manifest
// that names another object must not make them do so with their own rights.
func TestAPlantedManifestIsNoOrder(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, ctx := dial(server), t.Context()
	sum := strings.Repeat("0", 64)
	for _, payload := range []payload{
		{Name: server.Prefix() + "/payroll.csv", Size: 7, SHA256: sum},
		{Name: "", Size: 7, SHA256: sum},
		{Name: "KEY" + payloadFolder, Size: 7, SHA256: sum},
		{Name: "KEY" + payloadFolder + "../payroll.csv", Size: 7, SHA256: sum},
		{Name: "KEY" + payloadFolder + "1-a", Size: -7, SHA256: sum},
		{Name: "KEY" + payloadFolder + "1-a", Size: 7, SHA256: "short"},
	} {
		key, victim := objectName(server), server.Prefix()+"/payroll.csv"
		plant(t, server, victim, []byte("secrets"))
		payload.Name = strings.Replace(payload.Name, "KEY", key, 1)
		data, err := json.Marshal(manifest{Format: 1, Nonce: "planted", Mark: stamp(5, 1, 0).Mark(), Payload: &payload})
		if err != nil {
			t.Fatal(err)
		}
		plant(t, server, key+manifestSuffix, data)
		g := openGuard(t, server, client, key)
		if err := write(ctx, g, stamp(10, 2, 0), "content"); !errors.Is(err, ErrManifestDamaged) {
			t.Errorf("%q: a write: %v, want damaged", payload.Name, err)
		}
		if _, err := g.Raise(ctx, stamp(10, 2, 0)); !errors.Is(err, ErrManifestDamaged) {
			t.Errorf("%q: a raise: %v, want damaged", payload.Name, err)
		}
		if got, _, err := content(ctx, g); !errors.Is(err, ErrManifestDamaged) || len(got) > 0 {
			t.Errorf("%q: a reader gets %q, %v", payload.Name, got, err)
		}
		if err := g.Refresh(ctx); !errors.Is(err, ErrManifestDamaged) {
			t.Errorf("%q: a refresh: %v, want damaged", payload.Name, err)
		}
		if got, there, err := plain(ctx, client, server.Bucket, victim); !there || err != nil || string(got) != "secrets" {
			t.Errorf("%q: the other object is %q, %v", payload.Name, got, err)
		}
		if got, there, _ := plain(ctx, client, server.Bucket, key); there {
			t.Errorf("%q: the plain copy is %q", payload.Name, got)
		}
	}
}

// TestAnImpossibleMarkAdmitsNobody: the manifest counts as damaged.
func TestAnImpossibleMarkAdmitsNobody(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	key := objectName(server)
	g := openGuard(t, server, dial(server), key)
	for _, mark := range []string{
		`{"key":"a//b","token":1}`, `{"key":"a","token":-1}`, `{"key":"a","token":9007199254740992}`, `{"key":"a","token":1,"grant":"x"}`, `{"token":1}`, `[]`,
		strings.Repeat("[", 100_000),
	} {
		plant(t, server, key+manifestSuffix, []byte(`{"croft":1,"nonce":"planted","mark":`+mark+`}`))
		if err := write(t.Context(), g, stamp(20, 2, 0), "never"); !errors.Is(err, ErrManifestDamaged) || len(err.Error()) > 4096 {
			t.Errorf("the mark %.80s: %.200v, want damaged", mark, err)
		}
	}
	plant(t, server, key+manifestSuffix, bytes.Repeat([]byte(" "), objects.MaxBody+1))
	if err := write(t.Context(), g, stamp(20, 2, 0), "never"); !errors.Is(err, ErrManifestDamaged) {
		t.Errorf("a large manifest: %v, want damaged", err)
	}
}

// TestAPlantedNoteKeepsNoStoreClosed: the probe leaves a note in the bucket. If
// the note is no valid one, the store tries again.
func TestAPlantedNoteKeepsNoStoreClosed(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server) // an endpoint that this process has not tried
	layout, err := objects.NewLayout(server.Prefix())
	if err != nil {
		t.Fatal(err)
	}
	name := layout.Probe(newBucket(g.client(server), server.Bucket).endpoint())
	plant(t, server, name, bytes.Repeat([]byte("x"), objects.MaxBody+1))
	open(t, server, g.client(server), Options{})
	if note, _, err := plain(t.Context(), dial(server), server.Bucket, name); err != nil || !bytes.Contains(note, []byte("honoured")) {
		t.Errorf("the note is %.80q, %v; want that of the trial", note, err)
	}
}

// TestPlantedRecordsDecideNothing: whatever object lies under the name of a
// record.
func TestPlantedRecordsDecideNothing(t *testing.T) {
	t.Parallel()
	server, clock := testenv.S3(t), storetest.NewClock()
	st := open(t, server, dial(server), Options{now: clock.Now})
	objectstest.Planted(t, objectstest.Harness{
		Store: st, Layout: st.reg.layout, Advance: clock.Advance,
		Put: func(tb testing.TB, o objectstest.Object) {
			plant(tb, server, o.Name, o.Data, func(in *awss3.PutObjectInput) {
				in.ContentType = aws.String("text/html")
				if o.Encoding != "" {
					in.ContentEncoding = &o.Encoding
				}
			})
		},
		Get: func(tb testing.TB, name string) []byte {
			data, _, err := plain(tb.Context(), dial(server), server.Bucket, name)
			if err != nil {
				tb.Fatal(err)
			}
			return data
		},
	})
}

// TestADeletionToComeIsDamage: a claim waits for an announced deletion. Nobody
// can have announced one with a time in the future.
func TestADeletionToComeIsDamage(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	st, ctx := open(t, server, dial(server), Options{}), t.Context()
	now, err := st.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]time.Time{"in a day": now.AddDate(0, 0, 1), "never": now.AddDate(7000, 0, 0)} {
		key := "dropped/" + what
		data, _, err := objects.WriteDropped(key, at)
		if err != nil {
			t.Fatal(err)
		}
		name := st.reg.layout.Record(key)
		plant(t, server, name, data)
		if a := one(ctx, st, claim(key, "ann")); !errors.Is(a.Err, cas.ErrDamaged) || !strings.Contains(a.Err.Error(), name) {
			t.Errorf("%s: a claim: %v, want damage that names %s", what, a.Err, name)
		}
		if err := listing(ctx, st); !errors.Is(err, cas.ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: a listing: %v, want damage that names %s", what, err, name)
		}
		if got, _, err := plain(ctx, dial(server), server.Bucket, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: it is %q now, %v", what, got, err)
		}
	}
}

// TestASignedRequestFollowsNobody: a signed request is meant for one server. If
// that server redirects it, no other server may get the request or its content.
func TestASignedRequestFollowsNobody(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "croft")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	t.Setenv("AWS_SESSION_TOKEN", "hunter3")
	objectstest.Redirects(t, func(status int, endpoint string) {
		st, err := store.Open(t.Context(), "s3://bucket/leases?region=us-east-1&probe=off&endpoint="+endpoint)
		if err != nil {
			t.Fatal(err)
		}
		stores := []store.Store{st}
		for _, c := range []awss3.HTTPClient{nil, &http.Client{}} { // nil: the SDK's own
			server := &testenv.S3Server{Endpoint: endpoint, AccessKey: "croft", SecretKey: "hunter2"}
			own := dial(server, func(o *awss3.Options) {
				if c != nil {
					o.HTTPClient = c
				}
			})
			program, err := Open(t.Context(), own, "bucket", &Options{SkipProbe: true})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := program.reg.deleteWithin(t.Context(), "x", "", time.Now(), time.Minute); got != status {
				t.Errorf("status %d: a presigned request is answered %d, %v", status, got, err)
			}
			stores = append(stores, program)
		}
		for _, s := range stores {
			if a := one(t.Context(), s, claim("redirect/key", "ann")); !errors.Is(a.Err, store.ErrUnknown) || strings.Contains(a.Err.Error(), "hunter") {
				t.Errorf("status %d: %v, want unknown", status, a.Err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestStoresOfOneClientShareItsConnections: for all defaults modes of the
// client.
func TestStoresOfOneClientShareItsConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []aws.DefaultsMode{aws.DefaultsModeLegacy, aws.DefaultsModeStandard} {
		var opened atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
		server.Config.ConnState = func(_ net.Conn, to http.ConnState) {
			if to == http.StateNew {
				opened.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		client := dial(&testenv.S3Server{Endpoint: server.URL, AccessKey: "croft", SecretKey: "x"}, func(o *awss3.Options) { o.DefaultsMode = mode })
		first := newBucket(client, "bucket")
		for _, b := range []*bucket{first, first, newBucket(client, "bucket"), newBucket(client, "other")} {
			if _, err := b.get(t.Context(), "x"); !errors.Is(err, errAbsent) {
				t.Fatalf("%v, want absent", err)
			}
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("in mode %s, three buckets of one client have opened %d connections", mode, n)
		}
	}
}

// TestASignatureIsInNoError: the query of a presigned URL has the signature and
// the session token.
func TestASignatureIsInNoError(t *testing.T) {
	t.Parallel()
	client := awss3.New(awss3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://127.0.0.1:1"), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("croft", "hunter2", "hunter3"),
	})
	_, err := newBucket(client, "bucket").deleteWithin(t.Context(), "leases/x.json", "", time.Now(), time.Minute)
	if err == nil || !strings.Contains(err.Error(), "leases/x.json") {
		t.Fatalf("%v, want an error that names the object", err)
	}
	for _, secret := range []string{"hunter", "Signature", "Security-Token"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("it says %s: %v", secret, err)
		}
	}
}

package s3

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// The neighbour of these tests may write to some objects of the bucket. It must
// not be able to use the rights of others on the rest.

// plant puts an object in the bucket, as everybody with the right can.
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
// and a reader reads the one it finds. A manifest that names another object as
// its payload would make them do that with their own rights.
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
		data, err := json.Marshal(manifest{Format: 1, Nonce: "planted", Mark: fence.Mark(stamp(5, 1, 0)), Payload: &payload})
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

// TestAnImpossibleMarkAdmitsNobody.
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

// TestAPlantedNoteKeepsNoStoreClosed: the probe leaves a note in the bucket, and
// tries again where the note is none.
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

// TestPlantedRecordsDecideNothing: whatever lies under the name of a record, a
// claim is not granted over it, a listing shows the others, and it stays as it is.
func TestPlantedRecordsDecideNothing(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	st, ctx := open(t, server, dial(server), Options{}), t.Context()
	good := claim("planted/good", "ann")
	held := one(ctx, st, good)
	if held.Err != nil {
		t.Fatal(held.Err)
	}
	body := func(key string, change func(*tenure.Record)) []byte {
		t.Helper()
		rec := held.Record
		rec.Key, rec.History = key, append([]tenure.Term(nil), rec.History...)
		change(&rec)
		data, _, err := objects.Write(rec)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dropped, _, err := objects.WriteDropped(good.Key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write(make([]byte, 4<<20))
	_ = zip.Close()
	token := func(to fence.Token) func(*tenure.Record) {
		return func(rec *tenure.Record) { rec.Token, rec.History[len(rec.History)-1].Token = to, to }
	}
	many := func(rec *tenure.Record) { rec.Guards = make([]string, 1000) }
	long := func(rec *tenure.Record) { rec.Owner = strings.Repeat("x", 100_000) }
	for what, make := range map[string]func(key string) []byte{
		"nothing":            func(string) []byte { return nil },
		"more than a record": func(string) []byte { return bytes.Repeat([]byte("x"), 2<<20) },
		"deep":               func(string) []byte { return bytes.Repeat([]byte(`{"record":`), 20_000) },
		"packed zeros":       func(string) []byte { return packed.Bytes() },
		"a time without end": func(string) []byte {
			return []byte(`{"croft":1,"nonce":"x","dropped":{"at":"` + strings.Repeat("9", 100_000) + `"}}`)
		},
		"another's record":      func(string) []byte { return body(good.Key, token(held.Record.Token+1)) },
		"another's deletion":    func(string) []byte { return dropped },
		"a token beyond all":    func(key string) []byte { return body(key, token(fence.MaxToken+1)) },
		"a token below all":     func(key string) []byte { return body(key, token(-1)) },
		"an owner without end":  func(key string) []byte { return body(key, long) },
		"guards without number": func(key string) []byte { return body(key, many) },
	} {
		key := "planted/" + what
		name := st.reg.layout.Record(key)
		data := make(key)
		plant(t, server, name, data, func(in *awss3.PutObjectInput) {
			in.ContentType = aws.String("text/html")
			if what == "packed zeros" {
				in.ContentEncoding = aws.String("gzip")
			}
		})
		a := one(ctx, st, claim(key, "bob"))
		if !errors.Is(a.Err, store.ErrUnknown) || !errors.Is(a.Err, cas.ErrDamaged) || len(a.Err.Error()) > 4096 {
			t.Errorf("%s: a claim: %.300v, want damaged", what, a.Err)
		}
		if _, err := st.Get(ctx, key); err == nil {
			t.Errorf("%s: it is read as a record", what)
		}
		if got, _, err := plain(ctx, dial(server), server.Bucket, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: it was changed, %v", what, err)
		}
	}
	// Names that are no record's.
	for _, name := range []string{"readme.txt", "x.json", strings.ToUpper(strings.Repeat("ab", 32)) + ".json", strings.Repeat("ab", 32) + ".json.bak"} {
		plant(t, server, st.reg.layout.Records()+name, body("planted/ghost", func(*tenure.Record) {}))
	}
	var keys []string
	var failed error
	for rec, err := range st.List(ctx, "") {
		if failed = err; err == nil {
			keys = append(keys, fmt.Sprint(rec.Key, " ", rec.Token))
		}
	}
	if want := fmt.Sprint(good.Key, " ", held.Record.Token); len(keys) != 1 || keys[0] != want || !errors.Is(failed, cas.ErrDamaged) {
		t.Errorf("listed %q, then %.200v; want %q and damage", keys, failed, want)
	}
}

// TestASignedRequestFollowsNobody: a server that redirects is not the one that
// the request was signed for, and it gets the content, too.
func TestASignedRequestFollowsNobody(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int64
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, thief.URL+r.URL.Path, status)
		}))
		t.Setenv("AWS_ACCESS_KEY_ID", "croft")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
		t.Setenv("AWS_SESSION_TOKEN", "hunter3")
		st, err := store.Open(t.Context(), "s3://bucket/leases?region=us-east-1&probe=off&endpoint="+front.URL)
		if err != nil {
			t.Fatal(err)
		}
		own := dial(&testenv.S3Server{Endpoint: front.URL}, func(o *awss3.Options) { o.HTTPClient = &http.Client{} })
		program, err := Open(t.Context(), own, "bucket", &Options{SkipProbe: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []store.Store{st, program} {
			if a := one(t.Context(), s, claim("redirect/key", "ann")); !errors.Is(a.Err, store.ErrUnknown) || strings.Contains(a.Err.Error(), "hunter") {
				t.Errorf("status %d: %v, want unknown", status, a.Err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if asked.Load() == 0 || stolen.Load() != 0 {
			t.Errorf("status %d: %d requests, of which %d followed", status, asked.Load(), stolen.Load())
		}
		front.Close()
	}
}

// TestASignatureIsInNoError: a presigned URL has it in its query, with the
// session token.
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

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
)

var guarded atomic.Int64

// objectName returns a name that no other test uses. It has characters that
// need escaping.
func objectName(server *testenv.S3Server) string {
	return fmt.Sprintf("%s/out put/é+report %d.json", server.Prefix(), guarded.Add(1))
}

func openGuard(tb testing.TB, server *testenv.S3Server, client *awss3.Client, key string) *Guard {
	tb.Helper()
	g, err := OpenGuard(tb.Context(), client, server.Bucket, key, nil)
	if err != nil {
		tb.Fatal(err)
	}
	g.sweepOneIn = 0 // no random sweeps
	return g
}

// content reads the content that a guard's manifest names.
func content(ctx context.Context, g *Guard) ([]byte, bool, error) {
	r, err := g.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, err == nil, err
}

// plain reads an object like a client that does not know of the guard.
func plain(ctx context.Context, client *awss3.Client, bucket, key string) ([]byte, bool, error) {
	out, err := client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		if faultOf(err) == absent {
			err = nil
		}
		return nil, false, err
	}
	defer out.Body.Close()
	data, err := io.ReadAll(out.Body)
	return data, err == nil, err
}

// guardHarness makes guarded objects on the shared server. The suite reads them
// through the manifest, so they need no plain copies.
func guardHarness() guardtest.Harness {
	return guardtest.Harness{Large: 1 << 19, Slow: true, Make: func(tb testing.TB) guardtest.Resource {
		server := testenv.S3(tb)
		client, key := dial(server), objectName(server)
		handle := func(tb testing.TB) *Guard {
			g := openGuard(tb, server, client, key)
			g.noCopy = true
			return g
		}
		reader := handle(tb)
		return guardtest.Resource{
			Open: func(tb testing.TB) guardtest.Handle { return guardtest.Artifact(handle(tb)) },
			Read: func(ctx context.Context) ([]byte, bool, error) { return content(ctx, reader) },
			Signed: func(tb testing.TB, keys *signed.Keys) guardtest.Handle {
				g, err := OpenGuard(tb.Context(), client, server.Bucket, key, &GuardOptions{NoCopy: true, Keys: keys})
				if err != nil {
					tb.Fatal(err)
				}
				g.sweepOneIn = 0
				return guardtest.Artifact(g)
			},
		}
	}}
}

// TestGuardConformance runs the whole suite of guards. It reads through the
// guard.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardHarness())
}

func stamp(token fence.Token, grant int, seq uint64) fence.Stamp {
	return fence.Stamp{Key: "jobs/daily", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", grant)), Seq: seq}
}

func write(ctx context.Context, g *Guard, s fence.Stamp, text string) error {
	_, err := g.Write(ctx, s, strings.NewReader(text))
	return err
}

// TestALargeArtifactIsUploadedInParts: and the old content is removed.
func TestALargeArtifactIsUploadedInParts(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, key, ctx := dial(server), objectName(server), t.Context()
	g := openGuard(t, server, client, key)
	g.partSize, g.largestCopy = 5<<20, 6<<20
	if err := write(ctx, g, stamp(10, 1, 0), "small"); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 17<<20+3)
	for i := range large {
		large[i] = byte(i ^ i>>8 ^ i>>16)
	}
	receipt, err := g.Write(ctx, stamp(11, 2, 0), iotest(bytes.NewReader(large)))
	if err != nil || receipt.Bytes != int64(len(large)) || receipt.Adopted {
		t.Fatalf("%+v, %v", receipt, err)
	}
	if got, _, err := content(ctx, g); err != nil || !bytes.Equal(got, large) {
		t.Errorf("the manifest's content: %d bytes, %v", len(got), err)
	}
	if got, _, err := plain(ctx, client, server.Bucket, key); err != nil || !bytes.Equal(got, large) {
		t.Errorf("the plain copy: %d bytes, %v", len(got), err)
	}
	if out, err := client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &server.Bucket, Key: &key}); err != nil || out.Metadata["croft-stamp"] != stamp(11, 2, 0).String() || aws.ToString(out.ContentType) != "application/json" {
		t.Errorf("the plain copy does not say whose it is: %+v, %v", out, err)
	}
	if names := payloads(t, g); len(names) != 1 {
		t.Errorf("beside the manifest there are %q, want the present content alone", names)
	}
}

// iotest yields its content in pieces of odd sizes.
func iotest(r io.Reader) io.Reader { return &pieces{r, 1} }

type pieces struct {
	r io.Reader
	n int
}

func (p *pieces) Read(buf []byte) (int, error) {
	p.n = p.n*3%1048573 + 1
	return p.r.Read(buf[:min(len(buf), p.n)])
}

// payloads lists the payloads beside a manifest.
func payloads(tb testing.TB, g *Guard) (names []string) {
	tb.Helper()
	for page, err := range g.list(tb.Context(), g.key+payloadFolder) {
		if err != nil {
			tb.Fatal(err)
		}
		for _, o := range page {
			names = append(names, o.name)
		}
	}
	return names
}

// TestAnExistingObjectIsAdopted: before the first guarded write it is read as
// it is.
func TestAnExistingObjectIsAdopted(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, key, ctx := dial(server), objectName(server), t.Context()
	if _, err := client.PutObject(ctx, &awss3.PutObjectInput{Bucket: &server.Bucket, Key: &key, Body: strings.NewReader("before")}); err != nil {
		t.Fatal(err)
	}
	g := openGuard(t, server, client, key)
	if got, _, err := content(ctx, g); err != nil || string(got) != "before" {
		t.Errorf("before the first guarded write: %q, %v", got, err)
	}
	if _, err := g.Raise(ctx, stamp(9, 1, 0)); err != nil {
		t.Fatal(err)
	}
	receipt, err := g.Write(ctx, stamp(10, 1, 0), strings.NewReader("after"))
	if err != nil || !receipt.Adopted {
		t.Errorf("the first guarded write of what was there: %+v, %v", receipt, err)
	}
	if receipt, err = g.Write(ctx, stamp(10, 1, 0), strings.NewReader("later")); err != nil || receipt.Adopted {
		t.Errorf("the second: %+v, %v", receipt, err)
	}
}

// TestDamagedContentIsNotGivenOutAsWhole: the last Read returns an error.
func TestDamagedContentIsNotGivenOutAsWhole(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	client, ctx := dial(server), t.Context()
	g := openGuard(t, server, client, objectName(server))
	if err := write(ctx, g, stamp(10, 1, 0), "content"); err != nil {
		t.Fatal(err)
	}
	name := payloads(t, g)[0]
	if _, err := client.PutObject(ctx, &awss3.PutObjectInput{Bucket: &server.Bucket, Key: &name, Body: strings.NewReader("contenT")}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := content(ctx, g); !errors.Is(err, ErrContentDamaged) {
		t.Errorf("changed content: %q, %v", got, err)
	}
	g.forget(name)
	if got, _, err := content(ctx, g); !errors.Is(err, ErrManifestDamaged) {
		t.Errorf("content that is gone: %q, %v", got, err)
	}
	manifestName := g.manifestName()
	for _, text := range []string{"", "{}", `{"croft":1,"nonce":"x","payload":{}}`, "not JSON"} {
		if _, err := client.PutObject(ctx, &awss3.PutObjectInput{Bucket: &server.Bucket, Key: &manifestName, Body: strings.NewReader(text)}); err != nil {
			t.Fatal(err)
		}
		if err := write(ctx, g, stamp(11, 1, 0), "next"); !errors.Is(err, ErrManifestDamaged) {
			t.Errorf("a write over the manifest %q: %v", text, err)
		}
	}
}

// TestAGuardIsOpenedByURL: its own target opens the same guard.
func TestAGuardIsOpenedByURL(t *testing.T) {
	server := testenv.S3(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	mine := openGuard(t, server, dial(server), objectName(server))
	guardtest.ByURL(t, mine,
		"s3://", "s3://bucket", "s3://bucket/", "s3://bucket/dir/", "s3://bucket/a//b", "s3://bucket/a.fence", "s3://bucket/a.fence.d/b", "s3://bucket//a", "s3://key:secret@bucket/a", "s3://bucket/a#b",
		"s3://bucket/a?retention=1h", "s3://bucket/a?copy=maybe", "s3://bucket/a?endpoint=nowhere", "s3://bucket/a?path_style=perhaps", "s3://bucket/a?probe=2", "s3://bucket:80/a", "s3://bucket/a?region=a&region=b",
	)
}

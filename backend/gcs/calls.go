package gcs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/objects"
)

// These are the few calls of the service's JSON API that the package makes. It
// uses Google's client for just that API. Each call is one request and is sent
// once. Its caller decides what to do about a failure.
//
// (The larger client library brings gRPC and its service mesh into every
// program that imports it. That is 30 MB, and some milliseconds of every
// start.)

// condition must hold for a change to be made. generation is that of the
// object; 0 means that there must be none. metageneration is checked unless it
// is 0.
type condition struct{ generation, metageneration int64 }

// absent is the condition that there is no such object.
var absent = &condition{}

// conditional is a call that can be conditional.
type conditional[C any] interface {
	IfGenerationMatch(generation int64) C
	IfMetagenerationMatch(metageneration int64) C
	request[C]
}

// request is any call.
type request[C any] interface {
	UserProject(project string) C
	Context(ctx context.Context) C
}

// withCondition makes a call conditional, unless c is nil, and ready to be
// sent.
func withCondition[C conditional[C]](ctx context.Context, b *bucket, call C, c *condition) C {
	if c != nil {
		call = call.IfGenerationMatch(c.generation)
		if c.metageneration != 0 {
			call = call.IfMetagenerationMatch(c.metageneration)
		}
	}
	return prepare(ctx, b, call)
}

// prepare sets the project and the context of a call.
func prepare[C request[C]](ctx context.Context, b *bucket, call C) C {
	if b.project != "" {
		call = call.UserProject(b.project)
	}
	return call.Context(ctx)
}

// attrs reads everything about an object except its content.
func (b *bucket) attrs(ctx context.Context, name string) (*storage.Object, error) {
	return prepare(ctx, b, b.api.Objects.Get(b.name, name)).Do()
}

// getOnce reads a small object, and checks that it arrived undamaged. It reads
// at most one byte more than [objects.MaxBody]: that byte shows that the object
// is too long.
func (b *bucket) getOnce(ctx context.Context, name string) (content, error) {
	resp, err := prepare(ctx, b, b.api.Objects.Get(b.name, name)).Download()
	if err != nil {
		return content{}, err
	}
	defer resp.Body.Close()
	generation, err := strconv.ParseInt(resp.Header.Get("X-Goog-Generation"), 10, 64)
	if err != nil || generation <= 0 {
		return content{}, fmt.Errorf("the answer does not say which generation of %s it is;"+
			" a proxy between must leave the headers in place", name)
	}
	if strings.EqualFold(resp.Header.Get("X-Goog-Stored-Content-Encoding"), "gzip") { // as net/http compares it
		// Croft packs nothing, so somebody else has written the object. It may
		// not even be packed. Without its bytes it counts as damaged, too.
		return content{nil, generation}, nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, objects.MaxBody+1))
	if err != nil {
		return content{}, fmt.Errorf("the answer broke off: %w", err)
	}
	if sum := checksum(resp); sum != "" && sum != sumOf(data) && len(data) <= objects.MaxBody {
		return content{}, fmt.Errorf("the content of %s was damaged on its way: its checksum is not %s", name, sum)
	}
	return content{data, generation}, nil
}

// checksum returns the CRC32C that an answer gives for its content. It returns
// "" if there is none, or if the content was unpacked on the way.
func checksum(resp *http.Response) string {
	if resp.Uncompressed {
		return ""
	}
	for _, header := range resp.Header.Values("X-Goog-Hash") {
		for each := range strings.SplitSeq(header, ",") {
			if sum, ok := strings.CutPrefix(strings.TrimSpace(each), "crc32c="); ok {
				return sum
			}
		}
	}
	return ""
}

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// sumOf returns the CRC32C of a content in the service's form.
func sumOf(data []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(data, castagnoli())))
}

// insert replaces an object with all of its content, in one request.
func (b *bucket) insert(ctx context.Context, o *storage.Object, data []byte, c *condition) (*storage.Object, error) {
	o.Crc32c = sumOf(data) // the service refuses content with another sum
	options := []googleapi.MediaOption{googleapi.ChunkSize(0)}
	if o.ContentType != "" {
		options = append(options, googleapi.ContentType(o.ContentType)) // otherwise the library guesses it
	}
	call := b.api.Objects.Insert(b.name, o).Name(o.Name).Media(bytes.NewReader(data), options...)
	return withCondition(ctx, b, call, c).Do()
}

// stream makes an object, with one request for each chunk. Here the client
// library may send again: each chunk has its offset in the upload, and a lost
// one should not cost all chunks before it. stream reads r while it sends.
func (b *bucket) stream(ctx context.Context, o *storage.Object, r io.Reader, chunk int) (*storage.Object, error) {
	options := []googleapi.MediaOption{googleapi.ChunkSize(chunk), googleapi.EnableAutoChecksum()}
	if o.ContentType != "" {
		options = append(options, googleapi.ContentType(o.ContentType))
	}
	call := b.api.Objects.Insert(b.name, o).Name(o.Name).Media(r, options...).WithRetry(nil, nil)
	return withCondition(ctx, b, call, absent).Do()
}

// patch changes metadata. Entries that it does not name stay.
func (b *bucket) patch(
	ctx context.Context, name string, meta map[string]string, c *condition,
) (*storage.Object, error) {
	return withCondition(ctx, b, b.api.Objects.Patch(b.name, name, &storage.Object{Metadata: meta}), c).Do()
}

// copy lets the service copy a generation of an object to another name.
// Generation 0 is the newest. The copy has the attributes of o, or those of its
// source if o has none.
func (b *bucket) copy(
	ctx context.Context, from string, generation int64, to string, o *storage.Object, c *condition,
) error {
	for token := ""; ; {
		call := b.api.Objects.Rewrite(b.name, from, b.name, to, o)
		if generation != 0 {
			call = call.SourceGeneration(generation)
		}
		if token != "" {
			call = call.RewriteToken(token)
		}
		r, err := withCondition(ctx, b, call, c).Do()
		if err != nil || r.Done {
			return err
		}
		token = r.RewriteToken
	}
}

// delete deletes an object.
func (b *bucket) delete(ctx context.Context, name string, c *condition) error {
	return withCondition(ctx, b, b.api.Objects.Delete(b.name, name), c).Do()
}

// page lists some of the objects under a prefix. next is where to continue, and
// "" at the end.
func (b *bucket) page(ctx context.Context, prefix, token string) (page []*storage.Object, next string, err error) {
	call := b.api.Objects.List(b.name).Prefix(prefix).Projection("noAcl").MaxResults(pageSize).
		Fields("nextPageToken", "items(name,generation,updated,timeCreated,metadata)")
	if token != "" {
		call = call.PageToken(token)
	}
	list, err := prepare(ctx, b, call).Do()
	if err != nil {
		return nil, "", err
	}
	return list.Items, list.NextPageToken, nil
}

// settings reads the bucket's settings.
func (b *bucket) settings(ctx context.Context) (*storage.Bucket, error) {
	return prepare(ctx, b, b.api.Buckets.Get(b.name)).Do()
}

// timeOf reads a time of the service. It returns the zero time if the text is
// none.
func timeOf(text string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text)
	return t
}

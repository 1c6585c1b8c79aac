package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
)

// attributes are what an ordinary program sees of an object beside its content.
type attributes struct {
	ContentType, ContentEncoding, CacheControl string
	Metadata                                   map[string]string
}

// asClient acts as a program that knows nothing of guards, through the client
// library that most programs use. If put is not empty, it writes standard input
// to the object, with the attributes that put holds as JSON. It prints the
// object's attributes as JSON.
//
// It lives here, and not in Croft's tests, because the library brings a fifth
// of all code that those tests would be compiled from.
func asClient(endpoint, bucket, object, put string) error {
	ctx := context.Background()
	client, err := storage.NewClient(ctx, storage.WithJSONReads(), option.WithoutAuthentication(),
		option.WithEndpoint(endpoint+"/storage/v1/"))
	if err != nil {
		return err
	}
	defer client.Close()
	o := client.Bucket(bucket).Object(object)
	if put != "" {
		var wanted attributes
		if err := json.Unmarshal([]byte(put), &wanted); err != nil {
			return fmt.Errorf("-put: %w", err)
		}
		w := o.NewWriter(ctx)
		w.ContentType, w.ContentEncoding = wanted.ContentType, wanted.ContentEncoding
		w.CacheControl, w.Metadata = wanted.CacheControl, wanted.Metadata
		if _, err := io.Copy(w, os.Stdin); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	seen, err := o.Attrs(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(attributes{
		ContentType: seen.ContentType, ContentEncoding: seen.ContentEncoding,
		CacheControl: seen.CacheControl, Metadata: seen.Metadata,
	})
}

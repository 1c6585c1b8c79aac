// Program gcs is the Google Cloud Storage of Croft's tests: fake-gcs-server,
// which evaluates ifGenerationMatch on uploads and no other condition.
//
// With -exact a front evaluates ifGenerationMatch and ifMetagenerationMatch on
// every operation that changes an object, as Google documents them. With -keep
// the front also keeps everything in a folder, so that the process can be
// killed and started again.
//
// With -client the program serves nothing. It acts as an ordinary client of
// such a server.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host and port")
	root := flag.String(
		"root", "",
		"keep objects in this folder by the fake's own means, which a kill may interrupt; default: in memory",
	)
	exact := flag.Bool("exact", false, "evaluate every precondition, on every operation")
	keep := flag.String(
		"keep", "",
		"as -exact, and keep objects in this folder with their generations and metagenerations, whatever "+
			"a kill interrupts",
	)
	client := flag.String(
		"client", "",
		"serve nothing: act as an ordinary client of the server at this URL, and print -object's attributes",
	)
	bucket := flag.String("bucket", "", "the client's bucket")
	object := flag.String("object", "", "the client's object")
	put := flag.String("put", "", "write standard input to the client's object first, with these attributes in JSON")
	flag.Parse()
	var err error
	switch {
	case *client != "":
		err = asClient(*client, *bucket, *object, *put)
	case *root != "" && *keep != "":
		err = errors.New("-root and -keep are two ways to keep objects; choose one")
	default:
		err = serve(*listen, *root, *exact, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gcs:", err)
		os.Exit(1)
	}
}

func serve(listen, root string, exact bool, keep string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	var buckets []string
	var objects []kept
	if keep != "" {
		if buckets, objects, err = (keeper{keep}).load(); err != nil {
			return fmt.Errorf("reading what was kept: %w", err)
		}
	}
	initial := make([]fakestorage.Object, len(objects))
	for i, o := range objects {
		initial[i] = fakestorage.Object{ObjectAttrs: o.Attrs, Content: o.Content}
	}
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, Scheme: "http", StorageRoot: root, InitialObjects: initial, Writer: io.Discard,
		ExternalURL: "http://" + l.Addr().String(), PublicHost: l.Addr().String(),
	})
	if err != nil {
		return err
	}
	for _, name := range buckets {
		fake.CreateBucket(name)
	}
	handler := fake.HTTPHandler()
	if exact || keep != "" {
		front := newConditions(handler)
		if keep != "" {
			front.keep(fake, keeper{keep}, objects)
		}
		handler = front
	}
	fmt.Println("listening on", l.Addr())
	return http.Serve(l, whole(handler))
}

// whole passes on only complete requests. If an upload breaks off at the wrong
// moment, the fake makes an empty object; Google makes none.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

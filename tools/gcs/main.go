// Program gcs is the Google Cloud Storage that Croft's tests talk to: fake-gcs-server, which evaluates ifGenerationMatch on uploads and no other condition. With -exact it gets a
// front that evaluates the others, too, as Google documents them.
package main

import (
	"bytes"
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
	root := flag.String("root", "", "keep objects in this folder, so that they outlive the process; default: in memory")
	exact := flag.Bool("exact", false, "evaluate every precondition, on every operation")
	flag.Parse()
	if err := serve(*listen, *root, *exact); err != nil {
		fmt.Fprintln(os.Stderr, "gcs:", err)
		os.Exit(1)
	}
}

func serve(listen, root string, exact bool) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true, Scheme: "http", StorageRoot: root, Writer: io.Discard,
		ExternalURL: "http://" + l.Addr().String(), PublicHost: l.Addr().String(),
	})
	if err != nil {
		return err
	}
	handler := fake.HTTPHandler()
	if exact {
		handler = newConditions(handler)
	}
	fmt.Println("listening on", l.Addr())
	return http.Serve(l, whole(handler))
}

// whole passes on only requests that have come whole. The fake makes an empty object of an upload that breaks off at the wrong moment; Google makes none.
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

package gcs

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// ordinary has the attributes of an object that programs without guards can see
// and set, through the client library that most of them use. That library runs
// in the program of tools/gcs.
type ordinary struct {
	ContentType, ContentEncoding, CacheControl string
	Metadata                                   map[string]string
}

// ordinary reads the attributes of an object like such a program.
func (b *bucket) ordinary(tb testing.TB, object string) ordinary {
	tb.Helper()
	return b.asOrdinary(tb, object, nil)
}

// putOrdinary writes an object like such a program.
func (b *bucket) putOrdinary(tb testing.TB, object string, attributes ordinary, content io.Reader) {
	tb.Helper()
	put, err := json.Marshal(attributes)
	if err != nil {
		tb.Fatal(err)
	}
	b.asOrdinary(tb, object, content, "-put", string(put))
}

func (b *bucket) asOrdinary(tb testing.TB, object string, content io.Reader, more ...string) ordinary {
	tb.Helper()
	endpoint := strings.TrimSuffix(b.address, "/"+b.name)
	args := append([]string{"-client", endpoint, "-bucket", b.name, "-object", object}, more...)
	cmd := exec.CommandContext(tb.Context(), testenv.Built(tb, "gcs", "."), args...)
	var complaint strings.Builder
	cmd.Stdin, cmd.Stderr = content, &complaint
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%v: %s", err, complaint.String())
	}
	var seen ordinary
	if err := json.Unmarshal(out, &seen); err != nil {
		tb.Fatalf("%s: %v", out, err)
	}
	return seen
}

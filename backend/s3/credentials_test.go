package s3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/croft-dev/croft/store"
)

// TestMissingCredentialsAreCalledSo: the machine has none, and its metadata
// service hands out none. The error is not taken for the bucket's, and the SDK
// prints nothing of its own.
func TestMissingCredentialsAreCalledSo(t *testing.T) {
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_DISABLED",
	} {
		t.Setenv(name, "")
	}
	nothing := filepath.Join(t.TempDir(), "nothing")
	t.Setenv("AWS_CONFIG_FILE", nothing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
	var status, asked atomic.Int64
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	defer metadata.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	bucket := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the bucket is sent %s %s", r.Method, r.URL)
	}))
	defer bucket.Close()
	printed := standardError(t)
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest} {
		status.Store(int64(code))
		asked.Store(0)
		st, err := store.Open(t.Context(), "s3://bucket/leases?endpoint="+bucket.URL)
		if err == nil {
			_ = st.Close()
		}
		if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "no credentials for bucket bucket") ||
			!strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Errorf("the metadata service answers %d: %v", code, err)
		}
		if faultOf(err) != refused {
			t.Errorf("the metadata service answers %d: the fault is %d", code, faultOf(err))
		}
		if asked.Load() == 0 {
			t.Error("the metadata service was not asked")
		}
	}
	if text := printed(); text != "" {
		t.Errorf("standard error has %q", text)
	}
}

// TestABucketCannotSayThatCredentialsAreMissing: its answer is not taken for
// the SDK's own words. A failure of the metadata service may pass.
func TestABucketCannotSayThatCredentialsAreMissing(t *testing.T) {
	t.Parallel()
	answer := func(status int, message string) error {
		return &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
			Err:      &smithy.GenericAPIError{Code: "AccessDenied", Message: message},
		}
	}
	for _, c := range []struct {
		err     error
		missing bool
		want    fault
	}{
		{answer(http.StatusForbidden, "get credentials: none"), false, refused},
		{answer(http.StatusServiceUnavailable, "get credentials: none"), false, slow},
		{fmt.Errorf("get credentials: %w", answer(http.StatusConflict, "")), true, refused},
		{fmt.Errorf("get credentials: %w", answer(http.StatusInternalServerError, "")), true, slow},
		{errors.New("get credentials: none"), true, refused},
	} {
		err := error(&smithy.OperationError{ServiceID: "S3", OperationName: "GetObject", Err: c.err})
		if missing, found := noCredentials(err), faultOf(err); missing != c.missing || found != c.want {
			t.Errorf("%v: missing credentials %v, fault %d", err, missing, found)
		}
	}
}

// standardError catches all text on standard error, until the test calls
// printed.
func standardError(t *testing.T) (printed func() string) {
	t.Helper()
	usual := os.Stderr
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = file
	t.Cleanup(func() {
		os.Stderr = usual
		_ = file.Close()
	})
	return func() string {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

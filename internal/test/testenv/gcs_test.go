package testenv

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The server must keep content and metadata, with their generations and
// metagenerations, so that conditions hold or fail as before.
func TestAKilledGCSKeepsEverything(t *testing.T) {
	t.Parallel()
	s := GCSAlone(t, "-keep", t.TempDir())
	bucket := s.Bucket(t)
	call := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, s.Endpoint+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	upload := func(name, content string, generation int) int {
		t.Helper()
		status, _ := call(http.MethodPost, fmt.Sprintf("/upload/storage/v1/b/%s/o?uploadType=media&name=%s&ifGenerationMatch=%d", bucket, name, generation), content)
		return status
	}
	object := func(name string) string { return "/storage/v1/b/" + bucket + "/o/" + name }
	for _, name := range []string{"a", "b"} {
		if status := upload(name, "one", 0); status != http.StatusOK {
			t.Fatalf("creating %s: status %d", name, status)
		}
	}
	if status, text := call(http.MethodPatch, object("a")+"?ifMetagenerationMatch=1", `{"metadata": {"colour": "red"}}`); status != http.StatusOK {
		t.Fatalf("changing the metadata: status %d: %s", status, text)
	}
	if status, _ := call(http.MethodDelete, object("b"), ""); status >= 300 {
		t.Fatalf("deleting: status %d", status)
	}
	_, before := call(http.MethodGet, object("a"), "")
	if !strings.Contains(before, `"metageneration":"2"`) || !strings.Contains(before, "red") {
		t.Fatalf("before the kill: %s", before)
	}
	s.Kill()
	s.Restart(t)
	if _, after := call(http.MethodGet, object("a"), ""); after != before {
		t.Errorf("it was %s\nand is %s", before, after)
	}
	if _, content := call(http.MethodGet, object("a")+"?alt=media", ""); content != "one" {
		t.Errorf("it holds %q", content)
	}
	if status, _ := call(http.MethodGet, object("b"), ""); status != http.StatusNotFound {
		t.Errorf("what was deleted: status %d", status)
	}
	if status := upload("a", "two", 0); status != http.StatusPreconditionFailed {
		t.Errorf("creating what is there: status %d", status)
	}
	if status, _ := call(http.MethodPatch, object("a")+"?ifMetagenerationMatch=1", `{"metadata": {"colour": "blue"}}`); status != http.StatusPreconditionFailed {
		t.Errorf("changing metadata that were changed: status %d", status)
	}
}

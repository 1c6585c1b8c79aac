package cli

import (
	"slices"
	"strings"
	"testing"

	_ "github.com/croft-dev/croft/cmd/croft/internal/backends"
	"github.com/croft-dev/croft/guard"
)

// TestMarksAreKeptBesideTheLeases: this is so if the store's guard keeps marks
// under a name in a database. Other stores need --marks.
func TestMarksAreKeptBesideTheLeases(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		dir + "/store":                   dir + "/store-marks/{resource}",
		"dir://" + dir + "/store/":       dir + "/store-marks/{resource}",
		"redis://u:p@h:1/0?cluster=true": "redis://u:p@h:1/0?cluster=true#croft-proxy/{resource}",
		"postgresql://h/db#x":            "postgresql://h/db#croft-proxy/{resource}",
		"mem://":                         "",
		"file:///x":                      "",
		"s3://bucket/prefix":             "",
		"gs://bucket/prefix":             "",
	} {
		got, err := defaultMarks(name)
		if got != want || want == "" && (err == nil || !strings.Contains(err.Error(), "say where to keep them")) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, scheme := range guard.Schemes() {
		if slices.Contains([]string{"file", "s3", "gs"}, scheme) {
			continue
		}
		if got, err := defaultMarks(scheme + "://h/x"); got != scheme+"://h/x#croft-proxy/{resource}" {
			t.Errorf("%s: %q, %v", scheme, got, err)
		}
	}
}

package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// TestATargetIsAllowedInItsPlaceAlone: same scheme, host, port and query, and a
// path that is not above the place.
func TestATargetIsAllowedInItsPlaceAlone(t *testing.T) {
	for place, targets := range map[string]map[string]bool{
		"s3://bucket/reports": {
			"s3://bucket/reports":                                     true,
			"s3://bucket/reports/a.json":                              true,
			"S3://BUCKET/reports/a.json":                              true,
			"s3://bucket/reports2/a.json":                             false,
			"s3://bucket/":                                            false,
			"s3://bucket/reports/../secret":                           false,
			"s3://bucket//reports/a":                                  false,
			"s3://other/reports/a":                                    false,
			"gs://bucket/reports/a":                                   false,
			"s3://bucket/reports/a?endpoint=https://attacker.example": false,
			"s3://user:pw@bucket/reports/a":                           false,
			"":                                                        false,
			"reports/a":                                               false,
		},
		"gs://bucket?endpoint=http://localhost:4443": {
			"gs://bucket/a?endpoint=http://localhost:4443":         true,
			"gs://bucket/a?endpoint=http%3A%2F%2Flocalhost%3A4443": true,
			"gs://bucket/a": false,
			"gs://bucket/a?endpoint=http://localhost:4444":           false,
			"gs://bucket/a?endpoint=http://localhost:4443&project=p": false,
		},
		"postgres://db.example.com:5432/app": {
			"postgres://db.example.com:5432/app#row":      true,
			"postgres://ann@db.example.com:5432/app#row":  true,
			"postgres://db.example.com:5433/app#row":      false,
			"postgres://db.example.com:5432/other#row":    false,
			"postgres://db.example.com.evil.com/app#row":  false,
			"postgres://evil.com:5432/app#row":            false,
			"postgres://db.example.com:5432@evil/app#row": false,
		},
		"redis://cache:6379/0#one": {
			"redis://cache:6379/0#one": true,
			"redis://cache:6379/0#two": false,
		},
	} {
		a, err := guard.Allow(place)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		for target, want := range targets {
			if a.Has(target) != want {
				t.Errorf("%s in %s: %v, want %v", target, place, !want, want)
			}
		}
	}
	if (guard.Allowed{}).Has("s3://bucket/reports") {
		t.Error("no place allows a target")
	}
}

// TestLinksDoNotLeadOutOfAnAllowedFolder, also links to what is not there yet.
func TestLinksDoNotLeadOutOfAnAllowedFolder(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(top, "in"), filepath.Join(top, "out")
	for _, dir := range []string{in, out, filepath.Join(in, "sub")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"folder": out, "file": filepath.Join(out, "new"), "inside": filepath.Join(in, "sub")} {
		if err := os.Symlink(to, filepath.Join(in, link)); err != nil {
			t.Skip(err) // not on every system, and nothing to show there
		}
	}
	a, err := guard.Allow(in)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"a": true, "sub/a": true, "none/a": true, "inside/a": true, "": true,
		"folder/a": false, "file": false, "../out/a": false, "../in2": false,
	} {
		target := in + string(filepath.Separator) + filepath.FromSlash(name)
		if a.Has(target) != want {
			t.Errorf("%s: %v, want %v", target, !want, want)
		}
	}
	if !a.Has("file://"+filepath.ToSlash(in)+"/a") || a.Has("in/a") {
		t.Error("a file's URL is its path, and a relative path is nowhere")
	}
}

func TestAPlaceMustBeWhole(t *testing.T) {
	for _, place := range []string{"", "reports", "./reports", "s3://bucket/../x", "redis://u:pw@h:6379/0", "s3:bucket"} {
		if _, err := guard.Allow("/srv", place); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", place, err)
		}
	}
}

package guard_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
)

// openedGuard is a guard that was opened by a URL. Its name has no password.
// With a postgres URL it has, like the real guard, neither a user nor sslmode,
// and always a port.
type openedGuard struct {
	guardtest.Memory
	from *url.URL
	ctx  context.Context
}

func (g *openedGuard) Target() string {
	if g.from.Scheme == "file" {
		return g.from.Path
	}
	u := *g.from
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	if u.Scheme == "postgres" {
		query := u.Query()
		query.Del("sslmode")
		u.User, u.RawQuery = nil, query.Encode()
		if u.Port() == "" && u.Host != "" {
			u.Host += ":5432"
		}
	}
	return u.String()
}

// meanwhile runs between the look at a path and its opening.
var meanwhile func()

func init() {
	for _, scheme := range []string{"file", "sqlite", "s3", "gs", "postgres", "redis", "etcd", "etcds"} {
		guard.Register(scheme, func(ctx context.Context, u *url.URL) (guard.Guard, error) {
			if meanwhile != nil {
				meanwhile()
			}
			if u.Scheme == "file" { // as the guard of a file does
				if resolved, err := filepath.EvalSymlinks(filepath.Dir(u.Path)); err == nil {
					u.Path = filepath.Join(resolved, filepath.Base(u.Path))
				}
			}
			return &openedGuard{from: u, ctx: ctx}, nil
		})
	}
}

// TestATargetIsOpenedInItsPlaceAlone: scheme, host, port and resource must be
// the same, and the path must not lie above the place. User and options come
// from the place.
func TestATargetIsOpenedInItsPlaceAlone(t *testing.T) {
	for allowed, targets := range map[string]map[string]bool{
		"s3://bucket/reports": {
			"s3://bucket/reports":                                     true,
			"s3://bucket/reports/a.json":                              true,
			"s3://bucket/reports2/a.json":                             false,
			"s3://bucket/":                                            false,
			"s3://bucket/reports/../secret":                           false,
			"s3://bucket//reports/a":                                  false,
			"s3://other/reports/a":                                    false,
			"gs://bucket/reports/a":                                   false,
			"s3://bucket/reports/a?endpoint=https://attacker.example": false,
			"s3://user:pw@bucket/reports/a":                           true, // but not as that user
			"s3://bucket/reports/a?region=eu&profile=theirs":          true, // but not by that profile
			"s3:bucket/reports/a":                                     false,
			"":                                                        false,
			"reports/a":                                               false,
		},
		"gs://bucket?endpoint=http://localhost:4443": {
			"gs://bucket/a?endpoint=http%3A%2F%2Flocalhost%3A4443": true,
			"gs://bucket/a": false,
			"gs://bucket/a?endpoint=http%3A%2F%2Flocalhost%3A4444":           false,
			"gs://bucket/a?endpoint=http%3A%2F%2Flocalhost%3A4443&project=p": true, // by the operator's project
		},
		"postgres://ann:secret@DB.example.com/app?sslmode=verify-full": {
			"postgres://db.example.com:5432/app#row":           true,
			"postgres://bob@db.example.com:5432/app#row":       true, // but not as bob
			"postgres://db.example.com/app#row":                true,
			"postgres://db.example.com:5433/app#row":           false,
			"postgres://db.example.com:5432/app?schema=x#row":  false,
			"postgres://db.example.com:5432/other#row":         false,
			"postgres://db.example.com.evil.com:5432/app#row":  false,
			"postgres://evil.com:5432/app#row":                 false,
			"postgres://db.example.com:5432@evil:5432/app#row": false,
		},
		"postgresql:///app?host=/run/one": {
			"postgres:///app?host=%2Frun%2Fone#row":                true,
			"postgres:///app?host=%2Frun%2Ftwo#row":                false,
			"postgres:///app?host=%2Frun%2Fone&schema=billing#row": false,
			"postgres:///app?host=evil.example#row":                false,
			"postgres:///other?host=%2Frun%2Fone#row":              false,
		},
		"redis://cache:6379/0#one": {
			"redis://cache:6379/0#one": true,
			"redis://cache:6379/0#two": false,
		},
		"redis://ops:secret@cache/0?read_timeout=1s": {
			"redis://cache:6379/0#one":              true,
			"redis://cache/0#one":                   true,
			"redis://bob@cache:6379/0#one":          true,
			"redis://cache:6380/0#one":              false,
			"redis://cache:6379/0?db=3#one":         false,
			"redis://cache:6379/0?cluster=true#one": false,
			"redis://ops@cache.evil:6379/0#one":     false,
		},
		"etcds://ops:secret@one:2379,two:2379/?cert=mine.pem&key=mine.key": {
			"etcds://bob@one:2379,two:2379/?cert=bobs.pem&key=bobs.key#one": true,
			"etcd://one:2379,two:2379/#one":                                 false,
			"etcds://one:2379,evil:2379/#one":                               false,
		},
	} {
		a, err := guard.Allow(allowed)
		if err != nil {
			t.Errorf("%s: %v", allowed, err)
			continue
		}
		for target, want := range targets {
			g, err := a.Open(t.Context(), target)
			if (err == nil) != want || err != nil && !errors.Is(err, guard.ErrNotAllowed) {
				t.Errorf("%s in %s: %v; opened: want %v", target, allowed, err, want)
			}
			if err != nil {
				continue
			}
			from := g.(*openedGuard).from
			operator, _ := url.Parse(allowed)
			if !guard.IsNamed(g.(*openedGuard).ctx) {
				t.Errorf("%s was opened as if the operator had written it", target)
			}
			if from.User.String() != operator.User.String() || from.RawQuery != operator.RawQuery || from.Host != strings.ToLower(operator.Host) {
				t.Errorf("%s was opened as %s: all but the path comes from the operator's %s", target, from, allowed)
			}
		}
	}
	if _, err := (guard.Allowed{}).Open(t.Context(), "s3://bucket/reports"); !errors.Is(err, guard.ErrNotAllowed) {
		t.Errorf("without a place: %v", err)
	}
}

// TestEveryAllowedPlaceIsTried: the first place may have another resource of
// that name.
func TestEveryAllowedPlaceIsTried(t *testing.T) {
	a, err := guard.Allow("postgres://h/app", "postgres://h/app?schema=x")
	if err != nil {
		t.Fatal(err)
	}
	g, err := a.Open(t.Context(), "postgres://h:5432/app?schema=x#row")
	if err != nil || g.(*openedGuard).from.RawQuery != "schema=x" {
		t.Errorf("%+v, %v; want the guard in the second place", g, err)
	}
}

// TestLinksDoNotLeadOutOfAnAllowedFolder: neither do links to missing files,
// nor links that appear while the guard is being opened.
func TestLinksDoNotLeadOutOfAnAllowedFolder(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(top, "in"), filepath.Join(top, "out")
	for _, dir := range []string{in, out, filepath.Join(in, "sub"), filepath.Join(in, "swapped")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"folder": out, "file": filepath.Join(out, "new"), "inside": filepath.Join(in, "sub")} {
		if err := os.Symlink(to, filepath.Join(in, link)); err != nil {
			if runtime.GOOS != "windows" {
				t.Fatal(err)
			}
			t.Skipf("NOT TESTED: this user may not make links: %v", err)
		}
	}
	a, err := guard.Allow(in, "sqlite://"+filepath.ToSlash(in))
	if err != nil {
		t.Fatal(err)
	}
	try := func(target string, want bool) {
		t.Helper()
		if _, err := a.Open(t.Context(), target); (err == nil) != want || err != nil && !errors.Is(err, guard.ErrNotAllowed) {
			t.Errorf("%s: %v; opened: want %v", target, err, want)
		}
	}
	for name, want := range map[string]bool{
		"a": true, "sub/a": true, "none/a": true, "inside/a": true,
		"folder/a": false, "file": false, "../out/a": false, "../in2": false, "sub/../a": false, "folder/../../in/a": false,
	} {
		try(in+string(filepath.Separator)+filepath.FromSlash(name), want)
		try("sqlite://"+filepath.ToSlash(in)+"/"+name+"#row", want)
	}
	try("file://"+filepath.ToSlash(in)+"/a", true)
	try("in/a", false)
	meanwhile = func() {
		_ = os.Remove(filepath.Join(in, "swapped"))
		_ = os.Symlink(out, filepath.Join(in, "swapped"))
	}
	defer func() { meanwhile = nil }()
	try(filepath.Join(in, "swapped", "a"), false)
}

func TestAPlaceMustBeAnAbsolutePathOrAURL(t *testing.T) {
	for _, place := range []string{"", "reports", "//evil/share", "/srv//reports", "./reports", "s3://bucket/../x", "s3:bucket"} {
		if _, err := guard.Allow("/srv", place); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", place, err)
		}
	}
	if _, err := guard.Allow("redis://u:secret@h:6379/0/../1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v: want an error without the password", err)
	}
}

package gcs

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestTheTestServerHonoursConditions: of racing conditional uploads exactly one
// wins. Without this the other tests would prove nothing.
func TestTheTestServerHonoursConditions(t *testing.T) {
	t.Parallel()
	for kind, server := range map[string]*testenv.GCSServer{"plain": testenv.GCS(t), "exact": testenv.GCSExact(t)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := at(server.Endpoint)
			b, err := dial(t.Context(), server.Bucket(t), &c)
			if err != nil {
				t.Fatal(err)
			}
			generation := int64(0)
			for round := range 15 {
				var mu sync.Mutex
				var won []int64
				var all sync.WaitGroup
				for range 16 {
					all.Go(func() {
						g, err := b.putOnce(t.Context(), "race", generation, nonce(), "")
						mu.Lock()
						defer mu.Unlock()
						switch judge(err) {
						case done:
							won = append(won, g)
						case mismatch:
						default:
							t.Errorf("round %d: %v", round, err)
						}
					})
				}
				all.Wait()
				if len(won) != 1 {
					t.Fatalf("round %d: %d of 16 writes on one condition were made", round, len(won))
				}
				generation = won[0]
			}
		})
	}
}

// TestTheProbeRefusesAnEndpointThatIgnoresConditions: the error says which
// condition.
func TestTheProbeRefusesAnEndpointThatIgnoresConditions(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	name := server.Bucket(t)
	for says, strips := range map[string]func(value string) bool{
		"ifGenerationMatch=0": func(value string) bool { return value == "0" },
		"although its generation was another": func(value string) bool {
			return value != "0"
		},
		"honour ifGenerationMatch": func(string) bool { return true },
	} {
		way := newProxy(t, server.Endpoint)
		way.on(func(r *http.Request) *fault {
			query := r.URL.Query()
			if strips(query.Get("ifGenerationMatch")) {
				query.Del("ifGenerationMatch")
				r.URL.RawQuery = query.Encode()
			}
			return nil
		})
		for range 2 { // the second time is refused, too
			_, err := Open(t.Context(), name, "bad", &Options{Connection: at(way.URL)})
			var ignored *IgnoredError
			if !errors.As(err, &ignored) || !strings.Contains(err.Error(), says) {
				t.Errorf("an endpoint that ignores a condition: %v; want it refused, saying %q", err, says)
			}
		}
		st, err := Open(t.Context(), name, "bad", &Options{Connection: at(way.URL), SkipProbe: true})
		if err != nil {
			t.Fatalf("without the probe: %v", err)
		}
		st.Close()
	}
}

// TestGuardsNeedMoreThanLeases: the plain server does not check the
// metageneration. A guard there would let stale writes through.
func TestGuardsNeedMoreThanLeases(t *testing.T) {
	t.Parallel()
	server := testenv.GCS(t)
	var ignored *IgnoredError
	_, err := OpenGuard(t.Context(), server.Bucket(t), "out.json", &GuardOptions{Connection: at(server.Endpoint)})
	if !errors.As(err, &ignored) || !strings.Contains(err.Error(), "metagenerations") {
		t.Errorf("a server that ignores metagenerations: %v", err)
	}
	exact := testenv.GCSExact(t)
	changes := func(r *http.Request) bool { return r.Method == http.MethodPatch }
	copies := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/rewriteTo/") }
	uploads := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/upload/") }
	for _, c := range []struct {
		says, condition string
		of              func(*http.Request) bool
		lost            func(value string) bool
	}{
		{"ifMetagenerationMatch on changes", "ifMetagenerationMatch", changes, func(string) bool { return true }},
		{"ifMetagenerationMatch on copies", "ifMetagenerationMatch", copies, func(string) bool { return true }},
		{"ifMetagenerationMatch on uploads", "ifMetagenerationMatch", uploads, func(string) bool { return true }},
		{"ifGenerationMatch on changes", "ifGenerationMatch", changes, func(string) bool { return true }},
		{"ifGenerationMatch on copies", "ifGenerationMatch", copies, func(value string) bool { return value != "0" }},
		{"ifGenerationMatch=0 on copies", "ifGenerationMatch", copies, func(value string) bool { return value == "0" }},
	} {
		way := newProxy(t, exact.Endpoint)
		way.on(func(r *http.Request) *fault {
			query := r.URL.Query()
			if c.of(r) && c.lost(query.Get(c.condition)) {
				query.Del(c.condition)
				r.URL.RawQuery = query.Encode()
			}
			return nil
		})
		if _, err := OpenGuard(t.Context(), exact.Bucket(t), "out.json", &GuardOptions{Connection: at(way.URL)}); !errors.As(err, &ignored) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("a way that loses %s: %v", c.says, err)
		}
	}
}

// TestBadURLs: they get a clear error, and nothing is sent.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"gs://", "gs:///prefix", "gs://UPPER/x", "gs://b", "gs://bucket:80/x", "gs://ann@bucket/x", "gs://bucket/a//b", "gs://bucket/x#y", "gs://bucket/x?nonsense=1",
		"gs://bucket/x?retention=no", "gs://bucket/x?retention=-1h", "gs://bucket/x?probe=perhaps", "gs://bucket/x?endpoint=ftp://x", "gs://bucket/x?endpoint=a&endpoint=b",
	} {
		if _, err := store.Open(t.Context(), url); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", url, err)
		}
	}
}

package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	guarded "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// badLine is a server behind a line that breaks. At each PUT it asks broken
// what becomes of it.
type badLine struct {
	front  *httptest.Server
	folder string
	broken func(n int) fate // n counts from 1

	puts     atomic.Int32
	received atomic.Int64 // bytes of all PUTs
	mu       sync.Mutex   // guards srv
	srv      http.Handler
	uploads  *os.Root
}

// fate is what becomes of a PUT.
type fate int

const (
	arrives  fate = iota
	cut           // the connection breaks after 100 KiB
	lost          // the server acts, and its answer is lost
	killed        // the server acts, then another process follows it, and the answer is lost
	vanishes      // the server has forgotten all parts
)

const cutAfter = 100 << 10

func newBadLine(t *testing.T, broken func(n int) fate) *badLine {
	t.Helper()
	uploads, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = uploads.Close() })
	b := &badLine{folder: t.TempDir(), broken: broken, uploads: uploads}
	b.restart()
	b.front = httptest.NewUnstartedServer(b)
	b.front.Config.ErrorLog = silent()
	b.front.Start()
	t.Cleanup(b.front.Close)
	return b
}

// restart makes the server anew. It keeps what is on its disk.
func (b *badLine) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.srv = server.New(mem.New(nil), &server.Options{
		Files: filesIn(b.folder), Current: anybody{}, Uploads: b.uploads,
	})
}

// ServeHTTP lets the server answer over the bad line.
func (b *badLine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	srv := b.srv
	b.mu.Unlock()
	if r.Method != http.MethodPut {
		srv.ServeHTTP(w, r)
		return
	}
	what := b.broken(int(b.puts.Add(1)))
	body := &counted{ReadCloser: r.Body, n: &b.received, left: 1 << 40}
	r = r.WithContext(r.Context()) // net/http looks at the Body of its own
	r.Body = body
	switch what {
	case arrives:
		srv.ServeHTTP(w, r)
		return
	case cut:
		body.left = cutAfter
	case vanishes:
		entries, _ := os.ReadDir(b.uploads.Name())
		for _, e := range entries {
			_ = b.uploads.Remove(e.Name())
		}
		srv.ServeHTTP(w, r)
		return
	}
	srv.ServeHTTP(httptest.NewRecorder(), r)
	if what == killed {
		b.restart()
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// counted is a body that breaks off after some bytes.
type counted struct {
	io.ReadCloser
	n    *atomic.Int64
	left int
}

func (c *counted) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	c.n.Add(int64(n))
	return n, err
}

// noise is content in which every part differs from all others.
func noise(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// admitted returns the content, and how many writes the guard has admitted.
func (b *badLine) admitted(t *testing.T) ([]byte, uint64) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.folder, "out"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	g, err := guarded.Open(filepath.Join(b.folder, "out"), nil)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := g.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return content, counts.Writes
}

// TestAnUploadGoesOnAfterACut, where it was: nearly nothing is sent twice, and
// the content is written once. That holds for answers that are lost, too, and
// for a server that is restarted in between.
func TestAnUploadGoesOnAfterACut(t *testing.T) {
	t.Parallel()
	const size = 9<<20 + 7 // in four parts of 1, 2, 4 and 2 MiB
	for _, c := range []struct {
		what   string
		size   int
		fates  map[int]fate
		twice  int64 // bytes that may be sent twice
		writes uint64
	}{
		{"nothing happens", size, nil, 0, 1},
		{"cuts", size, map[int]fate{1: cut, 3: cut, 4: cut, 7: cut}, 4 * cutAfter, 1},
		{"lost answers to parts", size, map[int]fate{1: lost, 3: lost, 4: lost}, 4 << 20, 1},
		{"a restart in between", size, map[int]fate{2: killed}, 2 << 20, 1},
		{"the answer to the last part is lost", size, map[int]fate{4: lost}, 4 << 20, 1},
		{"short content that is cut", 300 << 10, map[int]fate{1: cut, 2: cut}, 2 * cutAfter, 1},
		{"short content whose answer is lost", 5, map[int]fate{1: lost, 2: lost}, 10, 1},
		{"empty content whose answer is lost", 0, map[int]fate{1: lost}, 0, 1},
		{"parts that the server has forgotten", size, map[int]fate{3: vanishes}, 7 << 20, 1},
		// The next process does not know that the content was written. The same
		// owner writes the same again.
		{"a restart at the end", size, map[int]fate{4: killed}, size + 4<<20, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			b := newBadLine(t, func(n int) fate { return c.fates[n] })
			f := openFile(t, connect(t, b.front.URL, nil), "out")
			content := noise(c.size)
			s := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32))}
			receipt, err := f.Write(t.Context(), s, bytes.NewReader(content))
			if err != nil || receipt.Bytes != int64(c.size) || receipt.Mark != s.Mark() {
				t.Fatalf("%+v, %v", receipt, err)
			}
			there, writes := b.admitted(t)
			if !bytes.Equal(there, content) || writes != c.writes {
				t.Errorf("%d bytes are there after %d writes, want %d after %d", len(there), writes, c.size, c.writes)
			}
			if sent := b.received.Load(); sent > int64(c.size)+c.twice {
				t.Errorf("%d bytes were sent for %d", sent, c.size)
			}
			if left, err := os.ReadDir(b.uploads.Name()); err != nil || len(left) != 0 {
				t.Errorf("the server keeps %v, %v", left, err)
			}
		})
	}
}

// TestANumberedUploadIsWrittenOnce, also if the server that has written it is
// killed before it answers: the mark has the number of this very write.
func TestANumberedUploadIsWrittenOnce(t *testing.T) {
	t.Parallel()
	b := newBadLine(t, func(n int) fate { return map[int]fate{2: killed}[n] })
	f := openFile(t, connect(t, b.front.URL, nil), "out")
	s := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32)), Seq: 7}
	content := noise(2 << 20)
	receipt, err := f.Write(t.Context(), s, bytes.NewReader(content))
	there, writes := b.admitted(t)
	if err != nil || receipt.Mark != s.Mark() || receipt.Bytes != 2<<20 || !bytes.Equal(there, content) || writes != 1 {
		t.Errorf("%+v, %v; %d writes", receipt, err, writes)
	}
	if _, err := f.Write(t.Context(), s, bytes.NewReader(content)); !errors.Is(err, fence.ErrRepeated) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("another write with this number: %v", err)
	}
}

// TestAnUploadDoesNotGoOnForAReplacedOwner: the stamp is checked for each part,
// and at the swap. The refusal of a later call is not told as that of a write
// which may have been made.
func TestAnUploadDoesNotGoOnForAReplacedOwner(t *testing.T) {
	t.Parallel()
	content := noise(4 << 20)
	old := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32))}
	now := fence.Stamp{Key: "jobs/a", Token: 6, Grant: fence.Grant(strings.Repeat("b", 32))}
	for what, c := range map[string]struct {
		at, lost int
		unknown  bool
		there    int
	}{
		"between two parts":          {at: 3, there: 1},
		"before the first part":      {at: 1, there: 1},
		"after the last answer lost": {at: 4, lost: 3, unknown: true, there: 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var b *badLine
			b = newBadLine(t, func(n int) fate {
				if n == c.at {
					g, err := guarded.Open(filepath.Join(b.folder, "out"), nil)
					if err == nil {
						_, err = g.Write(context.Background(), now, strings.NewReader("x"))
					}
					if err != nil {
						t.Error(err)
					}
				}
				if n == c.lost {
					return killed
				}
				return arrives
			})
			_, err := openFile(t, connect(t, b.front.URL, nil), "out").Write(t.Context(), old, bytes.NewReader(content))
			if !errors.Is(err, fence.ErrStale) || errors.Is(err, store.ErrUnknown) != c.unknown {
				t.Errorf("%v; want it stale, and unknown: %t", err, c.unknown)
			}
			if there, _ := b.admitted(t); len(there) != c.there {
				t.Errorf("%d bytes are there", len(there))
			}
		})
	}
}

// TestAServerThatKeepsNoPartsGetsThemInOnePiece.
func TestAServerThatKeepsNoPartsGetsThemInOnePiece(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	front := serve(t, mem.New(nil), &server.Options{Files: filesIn(folder), Current: anybody{}})
	f := openFile(t, connect(t, front.URL, nil), "out")
	s := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32))}
	content := noise(3 << 20)
	if receipt, err := f.Write(t.Context(), s, bytes.NewReader(content)); err != nil || receipt.Bytes != 3<<20 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	if there, err := os.ReadFile(filepath.Join(folder, "out")); err != nil || !bytes.Equal(there, content) {
		t.Errorf("%d bytes, %v", len(there), err)
	}
}

// TestAnUploadFollowsNoServerThatLies about what has arrived.
func TestAnUploadFollowsNoServerThatLies(t *testing.T) {
	t.Parallel()
	s := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32))}
	gap := func(arrived int64) []byte {
		p := wire.NewProblem(wire.Gap, "go on there")
		p.Arrived = arrived
		return p.Bytes()
	}
	for what, c := range map[string]struct {
		status int
		body   []byte
	}{
		"more than it got":          {http.StatusOK, wire.File{Arrived: 2 << 20}.Write()},
		"less than it got":          {http.StatusOK, wire.File{Arrived: 1}.Write()},
		"less than nothing":         {http.StatusOK, wire.File{Arrived: -1}.Write()},
		"all of it after the first": {http.StatusOK, wire.File{Mark: s.Mark(), Bytes: 1}.Write()},
		"a gap that never ends":     {http.StatusConflict, gap(0)},
		"a gap before all":          {http.StatusConflict, gap(-1)},
		"a gap behind all":          {http.StatusConflict, gap(1 << 40)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				kind := wire.JSON
				if c.status != http.StatusOK {
					kind = wire.Refused
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(c.status)
				_, _ = w.Write(c.body)
			}))
			t.Cleanup(front.Close)
			f := openFile(t, connect(t, front.URL, nil), "out")
			if receipt, err := f.Write(t.Context(), s, bytes.NewReader(noise(3<<20))); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%+v, %v", receipt, err)
			}
		})
	}
}

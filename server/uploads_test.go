package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
)

// uploadRig is a server that keeps uploads.
type uploadRig struct {
	*rig
	folder, uploads string
}

func newUploadRig(t *testing.T, o *Options) *uploadRig {
	t.Helper()
	u := &uploadRig{folder: t.TempDir(), uploads: t.TempDir()}
	root, err := os.OpenRoot(u.uploads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	o.Uploads = root
	if o.Files == nil {
		o.Files = filesIn(u.folder)
	}
	u.rig = newRig(t, o)
	return u
}

// uploadOf describes an upload of a content.
func uploadOf(n int, content string) wire.Upload {
	sum := sha256.Sum256([]byte(content))
	return wire.Upload{ID: fmt.Sprintf("%032x", n), Size: int64(len(content)), Sum: hex.EncodeToString(sum[:])}
}

// part makes the call that sends content[from:to].
func (r *uploadRig) part(path string, s fence.Stamp, u wire.Upload, content string, from, to int) *http.Request {
	req := r.put(path, s, content[from:to])
	u.Offset = int64(from)
	req.Header.Set(wire.UploadHeader, u.Text())
	return req
}

// arrived checks the answer to a part that is not the last.
func arrived(t *testing.T, status int, body string, want int64) {
	t.Helper()
	if told, err := wire.ReadFile([]byte(body)); err != nil || status != http.StatusOK || told.Arrived != want {
		t.Errorf("%d %s; want %d bytes to have arrived", status, body, want)
	}
}

// atGap checks a refusal that tells where to go on.
func atGap(t *testing.T, what string, status int, body string, want int64) {
	t.Helper()
	refused(t, what, status, body, http.StatusConflict, wire.Gap)
	if p, err := wire.ReadProblem([]byte(body)); err != nil || p.Arrived != want {
		t.Errorf("%s: %s; want %d bytes to have arrived", what, body, want)
	}
}

// TestAnUploadIsCheckedAsAWhole: content that is not what the client has
// described never gets into the file, and neither do parts with a gap.
func TestAnUploadIsCheckedAsAWhole(t *testing.T) {
	t.Parallel()
	r := newUploadRig(t, &Options{MaxFile: 8})
	s := r.stampOf("jobs/a", 1)
	u := uploadOf(1, "12345678")
	do := func(content string, from, to int) (int, string) {
		return r.do(r.part("/files/out", s, u, content, from, to))
	}
	status, body := do("12345678", 4, 8)
	atGap(t, "a part without the first", status, body, 0)
	status, body = do("12345678", 0, 3)
	arrived(t, status, body, 3)
	status, body = do("12345678", 4, 8)
	atGap(t, "a part too far", status, body, 3)
	status, body = do("12x45678", 2, 5) // an overlap, with another byte
	arrived(t, status, body, 5)
	status, body = do("12345678", 5, 8)
	atGap(t, "damaged content", status, body, 0)
	if left := files(t, r.folder); len(left) != 0 {
		t.Errorf("the folder has %q", left)
	}
	for _, part := range [][2]int{{0, 3}, {3, 5}, {3, 5}} {
		status, body = do("12345678", part[0], part[1])
		arrived(t, status, body, int64(part[1]))
	}
	status, body = do("12345678", 5, 8)
	again, text := do("12345678", 5, 8)
	if status != http.StatusOK || again != status || text != body {
		t.Errorf("the last part: %d %s; again: %d %s", status, body, again, text)
	}
	if content, err := os.ReadFile(filepath.Join(r.folder, "out")); string(content) != "12345678" {
		t.Errorf("the file has %q, %v", content, err)
	}
	if left := files(t, r.uploads); len(left) != 0 {
		t.Errorf("these uploads are left: %q", left)
	}
	long := uploadOf(2, "123456789")
	status, body = r.do(r.part("/files/out", s, long, "123456789", 0, 3))
	refused(t, "too long", status, body, http.StatusRequestEntityTooLarge, wire.TooLarge)
	beyond := r.part("/files/out", s, uploadOf(3, "123"), "12345", 0, 5)
	status, body = r.do(beyond)
	refused(t, "beyond the end", status, body, http.StatusBadRequest, wire.Invalid)
	unknown := r.part("/files/out", s, uploadOf(3, "123"), "123", 0, 2)
	unknown.Body, unknown.ContentLength = io.NopCloser(strings.NewReader("12")), -1
	status, body = r.do(unknown)
	refused(t, "of a length not told", status, body, http.StatusBadRequest, wire.Invalid)
	two := r.part("/files/out", s, uploadOf(3, "123"), "123", 0, 2)
	two.Header.Add(wire.UploadHeader, "x")
	status, body = r.do(two)
	refused(t, "two descriptions", status, body, http.StatusBadRequest, wire.Invalid)
}

// TestNobodyGoesOnWithTheUploadOfAnother: client, stamp, path and content must
// be the same.
func TestNobodyGoesOnWithTheUploadOfAnother(t *testing.T) {
	t.Parallel()
	r := newUploadRig(t, &Options{Access: keyGrants{
		"ann": {Work: {"jobs/", "files/"}}, "bob": {Work: {"jobs/", "files/"}},
	}})
	s, other := r.stampOf("jobs/a", 1), r.stampOf("jobs/b", 2)
	u, content := uploadOf(1, "12345678"), "12345678"
	status, body := r.do(as("ann", r.part("/files/out", s, u, content, 0, 4)))
	arrived(t, status, body, 4)
	differs := u
	differs.Sum = uploadOf(1, "x").Sum
	for what, req := range map[string]*http.Request{
		"another client":  as("bob", r.part("/files/out", s, u, content, 4, 8)),
		"another stamp":   as("ann", r.part("/files/out", other, u, content, 4, 8)),
		"another file":    as("ann", r.part("/files/out2", s, u, content, 4, 8)),
		"another write":   as("ann", r.part("/files/out", s, uploadOf(2, content), content, 4, 8)),
		"another content": as("ann", r.part("/files/out", s, differs, content, 4, 8)),
	} {
		status, body := r.do(req)
		atGap(t, what, status, body, 0)
	}
	if status, body = r.do(as("ann", r.part("/files/out", s, u, content, 4, 8))); status != http.StatusOK {
		t.Errorf("the upload itself: %d %s", status, body)
	}
}

// lateOwner is asked for the current owner. From the nth question on, it is
// another.
type lateOwner struct {
	asked atomic.Int32
	until int32
}

func (l *lateOwner) Check(_ context.Context, s fence.Stamp) error {
	if l.asked.Add(1) >= l.until {
		return &fence.StaleError{Presented: s, Newest: fence.Mark{Key: s.Key, Token: s.Token + 1}}
	}
	return nil
}

// TestAnUploadIsCheckedAtTheSwap: an owner that was replaced while the content
// was on its way, or while the guard took it, does not get it into the file.
func TestAnUploadIsCheckedAtTheSwap(t *testing.T) {
	t.Parallel()
	for what, until := range map[string]int32{"between the parts": 2, "while the guard takes it": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			r := newUploadRig(t, &Options{Current: &lateOwner{until: until}, Files: func(ctx context.Context, path string) (guard.Artifact, error) {
				g, err := filesIn(folder)(ctx, path)
				return slowGuard{g}, err
			}})
			s, u, content := r.stampOf("jobs/a", 1), uploadOf(1, "12345678"), "12345678"
			status, body := r.do(r.part("/files/out", s, u, content, 0, 4))
			arrived(t, status, body, 4)
			status, body = r.do(r.part("/files/out", s, u, content, 4, 8))
			refused(t, what, status, body, http.StatusConflict, wire.Stale)
			if left := files(t, folder); len(left) != 0 {
				t.Errorf("the folder has %q", left)
			}
		})
	}
}

// slowGuard takes a while for content.
type slowGuard struct{ guard.Artifact }

func (g slowGuard) Write(ctx context.Context, s fence.Stamp, r io.Reader) (guard.Receipt, error) {
	time.Sleep(lateAfter + 10*time.Millisecond)
	return g.Artifact.Write(ctx, s, r)
}

// heldGuard holds writes up until hold is closed.
type heldGuard struct {
	guard.Artifact
	writes *atomic.Int32
	hold   <-chan struct{}
}

func (g heldGuard) Write(ctx context.Context, s fence.Stamp, r io.Reader) (guard.Receipt, error) {
	g.writes.Add(1)
	<-g.hold
	return g.Artifact.Write(ctx, s, r)
}

// TestAPartThatIsSentTwiceWritesOnce: the second call gets the answer of the
// first.
func TestAPartThatIsSentTwiceWritesOnce(t *testing.T) {
	t.Parallel()
	folder, hold, writes := t.TempDir(), make(chan struct{}), &atomic.Int32{}
	r := newUploadRig(t, &Options{Files: func(ctx context.Context, path string) (guard.Artifact, error) {
		g, err := filesIn(folder)(ctx, path)
		return heldGuard{g, writes, hold}, err
	}})
	s, u := r.stampOf("jobs/a", 1), uploadOf(1, "1234")
	var all sync.WaitGroup
	answers := make([]string, 3)
	for i := range answers {
		all.Go(func() { _, answers[i] = r.do(r.part("/files/out", s, u, "1234", 0, 4)) })
	}
	testenv.Eventually(t, "all calls are there", func() error {
		if len(r.srv.transfers) != len(answers) || writes.Load() != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	close(hold)
	all.Wait()
	if writes.Load() != 1 || answers[0] != answers[1] || answers[1] != answers[2] || !strings.Contains(answers[0], `"bytes":4`) {
		t.Errorf("%d writes, and these answers: %q", writes.Load(), answers)
	}
}

// TestUploadsAreBounded: the next one makes room by itself if another is idle,
// or was given up. Otherwise its client is told to come again. No client takes
// up the room of all.
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	r := newUploadRig(t, &Options{Access: keyGrants{
		"ann": {Work: {"jobs/", "files/"}}, "bob": {Work: {"jobs/", "files/"}},
	}})
	s, content, n := r.stampOf("jobs/a", 1), "12345678", 0
	begin := func(name string) (int, string) {
		n++
		return r.do(as(name, r.part("/files/out", s, uploadOf(n, content), content, 0, 4)))
	}
	for range maxUploads / 2 {
		status, body := begin("ann")
		arrived(t, status, body, 4)
	}
	status, body := begin("ann")
	refused(t, "one upload of a client too many", status, body, http.StatusServiceUnavailable, wire.Busy)
	for range maxUploads / 2 {
		status, body := begin("bob")
		arrived(t, status, body, 4)
	}
	age := func(name string, by time.Duration) {
		t.Helper()
		at := time.Now().Add(-by)
		if err := os.Chtimes(filepath.Join(r.uploads, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	age(uploadName(Identity{Name: "ann"}, "out", s, uploadOf(1, content)), 2*uploadIdle)
	status, body = begin("ann")
	arrived(t, status, body, 4)
	status, body = r.do(as("ann", r.part("/files/out", s, uploadOf(1, content), content, 4, 8)))
	atGap(t, "the idle upload", status, body, 0)
	if left := len(files(t, r.uploads)); left != maxUploads {
		t.Errorf("%d uploads are kept", left)
	}
	for _, name := range files(t, r.uploads) {
		age(name, uploadFor+time.Minute)
	}
	status, body = begin("bob")
	arrived(t, status, body, 4)
	if left := len(files(t, r.uploads)); left != 1 {
		t.Errorf("%d uploads are kept after all the others were given up", left)
	}
}

// TestUploadsThatWereGivenUpAreRemoved, also if nobody begins another one, and
// after a restart of the server. Otherwise they fill the disk for good.
func TestUploadsThatWereGivenUpAreRemoved(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	start := func() (k *uploads, kill func()) {
		t.Helper()
		root, err := os.OpenRoot(folder)
		if err != nil {
			t.Fatal(err)
		}
		return &New(mem.New(nil), &Options{Uploads: root}).uploads, func() { _ = root.Close() }
	}
	left := func(what string, want ...string) {
		t.Helper()
		if got := files(t, folder); !slices.Equal(got, want) {
			t.Errorf("%s: the folder has %q, want %q", what, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		keep := func(k *uploads, name string, offset int64) {
			t.Helper()
			if err := k.receive(name, offset, strings.NewReader("1234")); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(filepath.Join(folder, name), time.Now(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		first, kill := start()
		keep(first, "a-1", 0)
		keep(first, "a-2", 0)
		time.Sleep(uploadFor - time.Minute)
		keep(first, "a-2", 4)
		time.Sleep(2 * uploadLook)
		left("an hour later", "a-2")
		time.Sleep(uploadFor)
		left("after another hour")

		keep(first, "b-1", 0)
		kill()
		time.Sleep(uploadFor + time.Minute)
		left("while no server runs", "b-1")
		second, kill := start()
		left("after a start")
		keep(second, "b-2", 0)
		kill()
		_, kill = start()
		defer kill()
		left("after a restart", "b-2")
		time.Sleep(uploadFor + 2*uploadLook)
		left("an hour after the restart")
	})
}

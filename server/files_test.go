package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	guarded "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// filesIn offers the files in a folder.
func filesIn(folder string) Files {
	return func(_ context.Context, path string) (guard.Artifact, error) {
		return guarded.Open(filepath.Join(folder, filepath.FromSlash(path)), nil)
	}
}

// stampOf takes a key, and returns the stamp.
func (r *rig) stampOf(key string, n int) fence.Stamp {
	r.t.Helper()
	a := r.mem.Apply(r.t.Context(), []tenure.Request{{
		Verb: tenure.Takeover, Key: key, Secret: tenure.Secret(fmt.Sprintf("%032x", n)), Owner: "ann", TTL: time.Minute,
		Actor: "opal", Note: "why",
	}})[0]
	if a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return a.Record.Stamp()
}

// put makes a write.
func (r *rig) put(path string, s fence.Stamp, body string) *http.Request {
	req := r.request(http.MethodPut, path, body)
	req.Header.Set(wire.StampHeader, s.String())
	return req
}

// files lists the folder, without what guards keep beside the files.
func files(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".fence") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestNoPathLeadsOutOfTheFiles, nor to what guards keep beside their files:
// content written there would be a mark.
func TestNoPathLeadsOutOfTheFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var opened []string
	r := newRig(t, &Options{Files: func(ctx context.Context, path string) (guard.Artifact, error) {
		opened = append(opened, path)
		return filesIn(folder)(ctx, path)
	}})
	s := r.stampOf("jobs/a", 1)
	for _, path := range []string{
		"", ".", "..%2fout", "a%2f..%2f..%2fout", "%2e%2e", "%2e%2e/out", "a%00b", "a%0ab", "%2fetc%2fpasswd", "a%2f%2fb", "a/",
		"out.fence", "OUT.Fence", "out.fence.d/0001", "out.fence.d%2fhead", ".hidden", "a/.croft-stage", ".out.croft-stage-0123456789abcdef",
		strings.Repeat("a", fence.MaxKey),
	} {
		for _, req := range []*http.Request{
			r.put("/files/"+path, s, "content"),
			r.request(http.MethodGet, "/files/"+path, ""),
			r.request(http.MethodGet, "/v1/files/"+path, ""),
			r.request(http.MethodPost, "/v1/files/"+path, `{"act":"raise","stamp":"`+s.String()+`"}`),
			r.request(http.MethodPost, "/v1/files/"+path, `{"act":"rekey","key":"jobs/b","actor":"ann","note":"why"}`),
		} {
			resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode < 300 || resp.StatusCode >= 500 {
				t.Errorf("%s %s: %s", req.Method, req.URL, resp.Status)
			}
		}
	}
	if len(opened) != 0 || len(files(t, folder)) != 0 {
		t.Errorf("these were opened: %q; the folder has %q", opened, files(t, folder))
	}
	if status, body := r.do(r.put("/files/out", s, "content")); status != http.StatusOK {
		t.Errorf("a file: %d %s", status, body)
	}
	status, body := newRig(t, nil).get("/files/a")
	refused(t, "a server without files", status, body, http.StatusNotFound, wire.NotFound)
}

// keyGrants allow a verb on the keys with a prefix, to each name.
type keyGrants map[string]map[Verb][]string

func (keyGrants) Identify(r *http.Request) (Identity, error) { return rules{}.Identify(r) }

func (g keyGrants) May(id Identity, verb Verb, key string) bool {
	for has, prefixes := range g[id.Name] {
		if (verb == has || verb == Read) && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			return true
		}
	}
	return false
}

// TestThePolicyDecidesAboutFiles: the path is a key, and the stamp's key
// counts, too. A file that may not be read does not exist.
func TestThePolicyDecidesAboutFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var acted []Event
	r := newRig(t, &Options{Files: filesIn(folder), Access: keyGrants{
		"ann":  {Work: {"jobs/", "files/ann-"}},
		"bob":  {Work: {"files/"}, Read: {"jobs/"}},
		"rita": {Read: {"files/ann-"}},
		"opal": {Operate: {"files/"}},
	}, Observe: func(e Event) {
		if e.Kind == Acted {
			acted = append(acted, e)
		}
	}})
	s := r.stampOf("jobs/a", 1)
	rekey := `{"act":"rekey","key":"jobs/b","actor":"somebody","note":"renamed"}`
	for _, c := range []struct {
		what, name string
		req        *http.Request
		status     int
	}{
		{"nobody", "", r.put("/files/ann-out", s, "x"), 401},
		{"no right to the file", "ann", r.put("/files/out", s, "x"), 404},
		{"no right to work under the stamp", "bob", r.put("/files/ann-out", s, "x"), 403},
		{"no right to see the stamp's key", "opal", r.put("/files/ann-out", s, "x"), 404},
		{"both", "ann", r.put("/files/ann-out", s, "x"), 200},
		{"a reader's write", "rita", r.put("/files/ann-out", s, "y"), 404},
		{"a read", "rita", r.request(http.MethodGet, "/files/ann-out", ""), 200},
		{"a look at the mark", "rita", r.request(http.MethodGet, "/v1/files/ann-out", ""), 200},
		{"a hidden read", "rita", r.request(http.MethodGet, "/files/out", ""), 404},
		{"a hidden mark", "rita", r.request(http.MethodGet, "/v1/files/out", ""), 404},
		{"a raise without a right", "bob", r.request(http.MethodPost, "/v1/files/ann-out", `{"act":"raise","stamp":"`+s.String()+`"}`), 403},
		{"a raise", "ann", r.request(http.MethodPost, "/v1/files/ann-out", `{"act":"raise","stamp":"`+s.String()+`"}`), 200},
		{"a rekey by a worker", "ann", r.request(http.MethodPost, "/v1/files/ann-out", rekey), 403},
		{"a rekey", "opal", r.request(http.MethodPost, "/v1/files/ann-out", rekey), 200},
		{"an unknown act", "opal", r.request(http.MethodPost, "/v1/files/ann-out", `{"act":"drop"}`), 400},
		{"an unknown member", "opal", r.request(http.MethodPost, "/v1/files/ann-out", `{"act":"rekey","force":true}`), 400},
		{"a write under the former key", "ann", r.put("/files/ann-out", s, "z"), 409},
	} {
		if c.name != "" {
			as(c.name, c.req)
		}
		if status, body := r.do(c.req); status != c.status {
			t.Errorf("%s: %d %s; want %d", c.what, status, body, c.status)
		}
	}
	if content, err := os.ReadFile(filepath.Join(folder, "ann-out")); string(content) != "x" {
		t.Errorf("the file has %q, %v", content, err)
	}
	_, hidden := r.do(as("rita", r.request(http.MethodGet, "/files/out", "")))
	_, absent := r.do(as("rita", r.request(http.MethodGet, "/files/ann-none", "")))
	if hidden != absent {
		t.Errorf("a hidden file is answered with %s, and one that is not there with %s", hidden, absent)
	}
	if len(acted) != 2 || acted[0].Err == nil || acted[1].Err != nil || acted[1].Actor != "opal" || acted[1].Identity != "opal" ||
		acted[1].Key != "files/ann-out" || acted[1].Act != "rekey" || acted[1].Note != "renamed" {
		t.Errorf("the audit log has %+v", acted)
	}
}

// TestABadWriteLeavesTheFileAsItWas: too long, cut off, without one good stamp,
// or by an owner that was replaced.
func TestABadWriteLeavesTheFileAsItWas(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := newRig(t, &Options{Files: filesIn(folder), MaxFile: 8})
	old, now := r.stampOf("jobs/a", 1), r.stampOf("jobs/a", 2)
	if status, body := r.do(r.put("/files/out", now, "12345678")); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	forged := now
	forged.Token++
	chunked := r.put("/files/out", now, "123456789")
	chunked.Body, chunked.ContentLength = io.NopCloser(strings.NewReader("123456789")), -1
	none, two := r.put("/files/out", now, "x"), r.put("/files/out", now, "x")
	none.Header.Del(wire.StampHeader)
	two.Header.Add(wire.StampHeader, now.String())
	broken := r.put("/files/out", now, "x")
	broken.Header.Set(wire.StampHeader, "croft1:x")
	for _, c := range []struct {
		what   string
		req    *http.Request
		status int
		code   wire.Code
	}{
		{"too long", r.put("/files/out", now, "123456789"), 413, wire.TooLarge},
		{"too long, of a length not told", chunked, 413, wire.TooLarge},
		{"no stamp", none, 400, wire.Invalid},
		{"two stamps", two, 400, wire.Invalid},
		{"a broken stamp", broken, 400, wire.Invalid},
		{"a replaced owner", r.put("/files/out", old, "x"), 409, wire.Stale},
		{"a replaced owner at a new file", r.put("/files/new", old, "x"), 409, wire.NotOwned},
		{"a stamp that was made up", r.put("/files/out", forged, "x"), 409, wire.NotOwned},
		{"a folder that is not there", r.put("/files/none/out", now, "x"), 400, wire.Invalid},
	} {
		status, body := r.do(c.req)
		refused(t, c.what, status, body, c.status, c.code)
	}
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "PUT /files/out HTTP/1.1\r\nHost: localhost\r\nCroft-Stamp: %s\r\nContent-Length: 8\r\n\r\n1234", now)
	testenv.Eventually(t, "the content arrives", func() error {
		if len(r.srv.transfers) != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	_ = conn.Close()
	testenv.Eventually(t, "the transfer ends", func() error {
		if len(r.srv.transfers) != 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if content, err := os.ReadFile(filepath.Join(folder, "out")); string(content) != "12345678" || !slices.Equal(files(t, folder), []string{"out"}) {
		t.Errorf("the file has %q, %v, and the folder %q", content, err, files(t, folder))
	}
	mark, err := filesIn(folder)(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := mark.Mark(t.Context()); err != nil || m != now.Mark() {
		t.Errorf("the mark is %+v, %v", m, err)
	}
}

// TestAReplayedRequestHasNoSecondEffect: somebody who has recorded requests, or
// a proxy that sends them again late, changes nothing with them.
func TestAReplayedRequestHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := newRig(t, &Options{Files: filesIn(folder), Ledger: mem.NewLedger(nil)})
	type recorded struct{ path, body string }
	var tape []recorded
	post := func(path, body string) string {
		t.Helper()
		status, answer := r.post(path, body)
		if status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, body, status, answer)
		}
		tape = append(tape, recorded{path, body})
		return answer
	}
	byHand := `,"owner":"opal","actor":"opal","note":"why","ttl":"1h"}`
	post(path("jobs/a", "acquire"), `{`+secret(1)+`,"owner":"ann","ttl":"1h"}`)
	post(path("jobs/a", "renew"), `{`+secret(1)+`}`)
	post(path("jobs/a", "checkpoint"), `{`+secret(1)+`,"checkpoint":"aGk="}`)
	post(path("jobs/a", "release"), `{`+secret(1)+`}`)
	post(path("jobs/a", "takeover"), `{`+secret(2)+byHand)
	post(path("jobs/a", "revoke"), `{`+secret(3)+`,"actor":"opal","note":"why"}`)
	id := string(work.NewID())
	post("/v1/work/items/"+id+"/add", `{"queue":"q"}`)
	post("/v1/work/claim", `{"queues":["q"],`+secret(4)+`,"owner":"ann"}`)
	it, err := r.srv.o.Ledger.Get(t.Context(), work.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	post("/v1/work/items/"+id+"/fail", fmt.Sprintf(`{"token":%d,%s,"error":"no"}`, it.Record.Token, secret(4)))
	post("/v1/work/items/"+id+"/takeover", `{`+secret(5)+`,"actor":"opal","note":"why"}`)
	old := r.stampOf("jobs/b", 6)
	if status, body := r.do(r.put("/files/out", old, "old")); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := r.do(r.put("/files/out", r.stampOf("jobs/b", 7), "new")); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	// The newest owners, whom no copy may disturb.
	post(path("jobs/a", "acquire"), `{`+secret(8)+`,"owner":"bob","ttl":"1h"}`)
	tape = tape[:len(tape)-1]
	before, err := r.mem.Get(t.Context(), "jobs/a")
	if err != nil {
		t.Fatal(err)
	}
	owned, err := r.srv.o.Ledger.Get(t.Context(), work.ID(id))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, c := range tape {
			r.post(c.path, c.body)
		}
		r.do(r.put("/files/out", old, "old"))
	}
	if after, err := r.mem.Get(t.Context(), "jobs/a"); err != nil || after.Token != before.Token || after.Owner != "bob" || after.Terms != before.Terms || after.Deadline != before.Deadline {
		t.Errorf("after the copies: %+v, %v; want %+v", after, err, before)
	}
	if after, err := r.srv.o.Ledger.Get(t.Context(), work.ID(id)); err != nil || after.Record.Token != owned.Record.Token || after.State != owned.State || after.Attempts != owned.Attempts {
		t.Errorf("after the copies: %+v, %v; want %+v", after, err, owned)
	}
	if content, err := os.ReadFile(filepath.Join(folder, "out")); err != nil || string(content) != "new" {
		t.Errorf("after the copies the file has %q, %v", content, err)
	}
}

// TestFilesNeedTheStoreToSayWhoOwns: without an answer nothing is written.
func TestFilesNeedTheStoreToSayWhoOwns(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := rigOver(t, mem.New(nil), nil, &Options{Files: filesIn(folder), Current: silentStore{}})
	s := r.stampOf("jobs/a", 1)
	status, body := r.do(r.put("/files/out", s, "x"))
	refused(t, "a store that is away", status, body, http.StatusServiceUnavailable, wire.Unknown)
	if len(files(t, folder)) != 0 || strings.Contains(body, folder) {
		t.Errorf("the folder has %q, and the client is told %s", files(t, folder), body)
	}
}

type silentStore struct{}

func (silentStore) Check(context.Context, fence.Stamp) error {
	return errors.New("no answer from 10.0.0.7")
}

// heldGets is a ledger that answers about items only once hold is closed.
type heldGets struct {
	work.Ledger
	hold  <-chan struct{}
	asked atomic.Int32
}

func (l *heldGets) Get(ctx context.Context, id work.ID) (work.Item, error) {
	l.asked.Add(1)
	<-l.hold
	return l.Ledger.Get(ctx, id)
}

// TestWritersOfFilesTakeTurnsAtTheLedger, as all do that read items: the server
// asks it whether the stamp of an item is current.
func TestWritersOfFilesTakeTurnsAtTheLedger(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	l := &heldGets{Ledger: mem.NewLedger(nil), hold: hold}
	r, _ := workRig(t, &Options{Ledger: l, Files: filesIn(t.TempDir()), CallTimeout: 300 * time.Millisecond})
	s := fence.Stamp{Key: "q/" + string(work.NewID()), Token: 7, Grant: tenure.NewSecret().Grant()}
	const writers = 3 * maxLedger
	answers := make(chan string, writers)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(hold)
	for n := range writers {
		all.Go(func() {
			_, body := r.do(r.request(http.MethodPost, "/v1/files/out"+fmt.Sprint(n), `{"act":"raise","stamp":"`+s.String()+`"}`))
			answers <- body
		})
	}
	testenv.Eventually(t, "those whose turn does not come are answered", func() error {
		if n := len(answers); n != writers-maxLedger {
			return fmt.Errorf("%d are; the ledger was asked %d times", n, l.asked.Load())
		}
		return nil
	})
	for range writers - maxLedger {
		if body := <-answers; !strings.Contains(body, `"busy"`) {
			t.Errorf("the answer is %s", body)
		}
	}
	if n := l.asked.Load(); n != maxLedger {
		t.Errorf("the ledger was asked %d times at once, want %d", n, maxLedger)
	}
}

// TestTransfersAreBounded: the next one is told to come again.
func TestTransfersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Files: filesIn(t.TempDir())})
	for range maxTransfers {
		r.srv.transfers.enter()
	}
	status, body := r.do(r.put("/files/out", r.stampOf("jobs/a", 1), "x"))
	refused(t, "one transfer too many", status, body, http.StatusServiceUnavailable, wire.Busy)
}

// TestTheAuditLogTakesNoActThatCannotBe: somebody without any right could fill
// it, or forge its lines.
func TestTheAuditLogTakesNoActThatCannotBe(t *testing.T) {
	t.Parallel()
	var acted []Event
	r := newRig(t, &Options{Files: filesIn(t.TempDir()), Access: grants{}, Observe: func(e Event) {
		if e.Kind == Acted {
			acted = append(acted, e)
		}
	}})
	const good = `{"act":"rekey","key":"jobs/b","actor":"ann","note":"why"}`
	for _, c := range []struct{ path, body string }{
		{"a%0ab", good},
		{strings.Repeat("x", fence.MaxKey), good},
		{"out.fence", good},
		{"out", `{"act":"rekey","key":"jobs/b","actor":"ann","note":"` + strings.Repeat("x", guard.MaxNote+1) + `"}`},
		{"out", `{"act":"reset","actor":"ann","note":"a\nb"}`},
		{"out", `{"act":"rekey","key":"","actor":"ann","note":"why"}`},
	} {
		req := as("ann", r.request(http.MethodPost, "/v1/files/"+c.path, c.body))
		if status, body := r.do(req); status != http.StatusBadRequest {
			t.Errorf("%.40s %.80s: %d %s", c.path, c.body, status, body)
		}
	}
	if len(acted) != 0 {
		t.Errorf("the audit log has %d acts, the first at %.40q with a note of %d bytes", len(acted), acted[0].Key, len(acted[0].Note))
	}
	status, body := r.do(as("ann", r.request(http.MethodPost, "/v1/files/out", good)))
	refused(t, "an act without a right", status, body, http.StatusNotFound, wire.NotFound)
	if len(acted) != 1 || acted[0].Err == nil || acted[0].Actor != "ann" {
		t.Errorf("the audit log has %+v", acted)
	}
}

// TestATricklingUploadRunsOutOfTime: each byte alone gives it no more time. A
// guard that is slow to take the content costs the client none.
func TestATricklingUploadRunsOutOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{ResponseWriter: httptest.NewRecorder()}
		u := &upload{c: &call{out: http.NewResponseController(d)}, from: trickle{}}
		begun := time.Now()
		for range 10 {
			if _, err := u.Read(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			if left := d.last.Sub(begun); left != receiveWithin {
				t.Fatalf("the part may last %s, want %s", left, receiveWithin)
			}
		}
		u.from = strings.NewReader(strings.Repeat("x", 2*filePart))
		if _, err := u.Read(make([]byte, filePart)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the guard writes
		if _, err := u.Read(make([]byte, 8)); err != nil || !d.last.Equal(time.Now().Add(receiveWithin)) {
			t.Errorf("the next part may last until %s, %v", d.last, err)
		}
	})
}

// trickle yields a byte each second.
type trickle struct{}

func (trickle) Read(b []byte) (int, error) {
	time.Sleep(time.Second)
	return copy(b[:1], "x"), nil
}

// deadlines notes the deadline of a connection.
type deadlines struct {
	http.ResponseWriter
	last time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.last = at
	return nil
}

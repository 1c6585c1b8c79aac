package browser

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/server/access"
	"github.com/croft-dev/croft/server/page"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

var (
	pictures = flag.String("pictures", "", "write all screenshots of the story into this `folder`")
	publish  = flag.Bool("publish", false, "write the screenshot in docs/pictures again")
)

// published is the picture in the documents.
const published = "../../docs/pictures/page.png"

// stage is a server with its page, and stores in memory whose clock can be
// moved ahead.
type stage struct {
	t      *testing.T
	url    string
	mem    *mem.Store
	ledger work.Ledger
	clock  *storetest.Clock // stands still, so that no lease ends by itself
	folder string           // of the files that the server offers
	open   atomic.Int64     // streams of changes
	stop   func()
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, clock: storetest.NewClock(), folder: t.TempDir()}
	o := &mem.Options{Now: s.clock.Now}
	s.mem, s.ledger = mem.New(o), mem.NewLedger(o)
	policy, err := access.Parse(fmt.Appendf(nil, "token opal sha256:%x\nopal may read, operate on *\n", sha256.Sum256([]byte("opals-token"))))
	if err != nil {
		t.Fatal(err)
	}
	files := func(_ context.Context, path string) (guard.Artifact, error) {
		return file.Open(filepath.Join(s.folder, path), nil)
	}
	api := server.New(examined{s.mem}, &server.Options{Access: policy, Ledger: s.ledger, Files: files})
	shown := page.New(api, s.mem, &page.Options{Access: policy, Ledger: s.ledger, Store: "sqlite:///var/lib/croft.db"})
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ui/events" {
			s.open.Add(1)
			defer s.open.Add(-1)
		}
		shown.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.Start()
	s.url = front.URL
	s.stop = sync.OnceFunc(func() {
		api.Drain()
		front.Close()
	})
	t.Cleanup(func() {
		s.stop()
		_ = s.ledger.Close()
	})
	return s
}

// examined is a store that can be examined.
type examined struct{ *mem.Store }

func (examined) Examine(context.Context) ([]store.Finding, error) {
	return []store.Finding{
		{Check: "durability", Level: store.OK, Seen: "every write is synced"},
		{Check: "space", Level: store.Warn, Seen: "310 MiB free", Advice: "make room: a full disk refuses every acquire and renewal"},
	}, nil
}

func (s *stage) wait(d time.Duration) { s.clock.Advance(d) }

// apply carries out a request of the law.
func (s *stage) apply(q tenure.Request) tenure.Record {
	s.t.Helper()
	if q.Secret == "" {
		q.Secret = tenure.NewSecret()
	}
	a := s.mem.Apply(s.t.Context(), []tenure.Request{q})[0]
	if a.Err != nil {
		s.t.Fatal(a.Err)
	}
	return a.Record
}

func (s *stage) hold(key, owner, progress string, ttl time.Duration, guards ...string) tenure.Secret {
	secret := tenure.NewSecret()
	s.apply(tenure.Request{Verb: tenure.Acquire, Key: key, Owner: owner, Instance: owner + "-1", TTL: ttl, Secret: secret, Guards: guards})
	if progress != "" {
		s.apply(tenure.Request{Verb: tenure.Report, Key: key, Secret: secret, Progress: progress})
	}
	return secret
}

// dress fills the stores with a night's work: some of it went wrong.
func (s *stage) dress(guarded string) (ann tenure.Secret, dead work.ID) {
	first := s.hold("reports/daily", "cleo@batch-2", "", time.Minute, guarded)
	s.wait(40 * time.Second)
	s.apply(tenure.Request{Verb: tenure.Release, Key: "reports/daily", Secret: first})
	s.hold("render/frames", "gpu@node-7", "frame 118 of 900", time.Minute)
	s.wait(30 * time.Second)
	s.hold("reports/daily", "cleo@batch-2", "", 20*time.Second, guarded)
	s.wait(90 * time.Second)
	slow := s.hold("etl/orders", "etl@node-3", "batch 41", time.Hour)
	s.wait(18 * time.Minute)
	s.apply(tenure.Request{Verb: tenure.Renew, Key: "etl/orders", Secret: slow})
	s.apply(tenure.Request{Verb: tenure.Reserve, Key: "billing/close", Owner: "fin@books", Actor: "opal", Note: "month end: books only", TTL: time.Hour})
	s.hold("mail/digest", "mail@node-1", "", 4*time.Minute)
	s.wait(3 * time.Minute)
	s.hold("search/index", "idx@node-4", "shard 3 of 12", 2*time.Minute)
	ann = s.hold("reports/daily", "ann@batch-1", "page 12 of 40", time.Hour, guarded)

	it, err := work.Enqueue(s.t.Context(), s.ledger, "thumbnails", map[string]string{"image": "s3://in/4711.png"}, &work.ItemOptions{Limit: 3})
	if err != nil {
		s.t.Fatal(err)
	}
	for range 4 {
		if _, err := work.Enqueue(s.t.Context(), s.ledger, "thumbnails", "more", nil); err != nil {
			s.t.Fatal(err)
		}
	}
	secret := tenure.NewSecret()
	claimed, err := s.ledger.Claim(s.t.Context(), work.Claim{Queues: []string{"thumbnails"}, Limit: 2, Secret: secret, Owner: "thumb@node-5", TTL: time.Minute})
	if err != nil || len(claimed) != 2 || claimed[0].ID != it.ID {
		s.t.Fatal(claimed, err)
	}
	a := s.ledger.Apply(s.t.Context(), []work.Request{
		{Verb: work.Checkpoint, ID: it.ID, Token: claimed[0].Record.Token, Secret: secret, State: []byte(`{"scaled": 3}`)},
		{Verb: work.Fail, ID: it.ID, Token: claimed[0].Record.Token, Secret: secret, Error: "the image server answered 502", Final: true},
	})
	if err := errors.Join(a[0].Err, a[1].Err); err != nil {
		s.t.Fatal(err)
	}
	return ann, it.ID
}

// browser is a tab of headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	wrong []string // what the browser complained about
}

func newBrowser(t *testing.T) *browser {
	options := append(
		chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(testenv.Program(t, "chromium", "chromium")),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(testenv.Patience),
	)
	ctx, wait := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(func() { end(); wait() })
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1180, 860)); err != nil {
		t.Fatal(err)
	}
	go collect(b, chromedp.Events(ctx, runtime.ExceptionThrown), func(e runtime.EventExceptionThrown) string {
		return fmt.Sprintf("%+v", e.ExceptionDetails)
	})
	go collect(b, chromedp.Events(ctx, cdplog.EntryAdded), func(e cdplog.EventEntryAdded) string {
		if e.Entry.Level != cdplog.EntryLevelError {
			return ""
		}
		return e.Entry.Text + " " + e.Entry.URL
	})
	b.do("hear of errors", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdplog.Enable, cdp.Empty{})
		return err
	}))
	return b
}

// collect keeps what the browser complains about.
func collect[E any](b *browser, events iter.Seq2[E, error], text func(E) string) {
	for e, err := range events {
		if err != nil {
			return
		}
		if what := text(e); what != "" {
			b.mu.Lock()
			b.wrong = append(b.wrong, what)
			b.mu.Unlock()
		}
	}
}

// complaints returns what the browser has complained about.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// do carries out actions, each of which waits for its element.
func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testenv.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
		b.t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

type action = chromedp.Action[chromedp.Void]

func visible(selector string) action    { return chromedp.WaitVisible(chromedp.CSS(selector)) }
func focus(selector string) action      { return chromedp.Focus(chromedp.CSS(selector)) }
func keys(selector, text string) action { return chromedp.SendKeys(chromedp.CSS(selector), text) }

// shows waits until the text of an element has all of the words.
func (b *browser) shows(selector string, words ...string) {
	b.t.Helper()
	testenv.Eventually(b.t, fmt.Sprintf("%s shows %q", selector, words), func() error {
		text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](
			fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText).join("\n")`, selector)))
		if err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("no %q in %s", word, text)
			}
		}
		return nil
	})
}

// truth evaluates a condition in the page.
func (b *browser) truth(what, condition string) {
	b.t.Helper()
	if is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](condition)); err != nil || !is {
		b.t.Errorf("%s: %t, %v", what, is, err)
	}
}

// picture takes a picture of the page in both themes and at the width of a
// phone. In none of them a page is wider than its window.
func (b *browser) picture(name string) {
	b.t.Helper()
	theme := func(name string) action {
		return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
			return err
		})
	}
	for _, look := range []struct {
		name, theme string
		width       int64
	}{{"light", "light", 1180}, {"dark", "dark", 1180}, {"phone", "light", 390}, {"phone-dark", "dark", 390}} {
		b.do(name, theme(look.theme), chromedp.EmulateViewport(look.width, 860))
		b.truth(name+" fits into its window, "+look.name, `document.documentElement.scrollWidth <= innerWidth`)
		if *pictures == "" && (!*publish || name != "keys" || look.name != "light") {
			continue
		}
		png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			b.t.Fatal(err)
		}
		if *pictures != "" {
			if err := os.WriteFile(filepath.Join(*pictures, name+"-"+look.name+".png"), png, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
		if *publish && name == "keys" && look.name == "light" {
			if err := os.WriteFile(published, png, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b.do(name, theme("light"), chromedp.EmulateViewport(1180, 860))
}

// row is the row of a key in the table of keys.
func row(key string) string {
	return fmt.Sprintf(`tr:has(a[href="/ui/key?key=%s"])`, strings.ReplaceAll(key, "/", "%2f"))
}

// named is a file under another name: that of a server, or one that does not
// tell where the test ran.
type named struct {
	*file.File
	target string
}

func (n named) Target() string { return n.target }

// TestAnOperatorsMorning: sign in, watch a lease change hands, take it over
// with a note, see the old owner refused, and bring a dead item back. All of it
// by keyboard.
func TestAnOperatorsMorning(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newStage(t)
	plain, err := file.Open(filepath.Join(s.folder, "daily.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	report, served := named{plain, "/shared/out/daily.json"}, named{plain, s.url + "/files/daily.json"}
	ann, dead := s.dress(report.Target())

	// A wrong token, then the right one. It is in no address.
	b.do("open", chromedp.Navigate(s.url+"/"), visible("#token"))
	b.picture("signin")
	b.do("a wrong token", keys("#token", "opal"+kb.Enter), visible(".alert"))
	b.do("sign in", keys("#token", "opals-token"+kb.Enter), visible(".tiles"))
	b.truth("scripts cannot read the cookie", `document.cookie === "" && !location.href.includes("token")`)

	// The page shows keys held, stalled, about to lapse, and dead.
	b.shows(row("reports/daily"), "held", "ann@batch-1", "page 12 of 40")
	b.shows(row("etl/orders"), "stalled", "batch 41")
	b.shows(row("mail/digest"), "about to lapse")
	b.shows(row("render/frames"), "dead", "gpu@node-7")
	b.shows("#link", "live")

	// The lease changes hands. The page shows it without being loaded again.
	b.truth("a mark in this page", `window.stayed = true`)
	s.apply(tenure.Request{Verb: tenure.Release, Key: "reports/daily", Secret: ann})
	bob := croft.New(s.mem, &croft.Options{Owner: "bob@batch-2"})
	defer bob.Close()
	lease, err := bob.Acquire(t.Context(), "reports/daily", &croft.LeaseOptions{TTL: time.Hour, Guards: []croft.Guard{report, served}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Report(t.Context(), "page 13 of 40"), second(report.Write(t.Context(), lease.Stamp(), strings.NewReader("13")))); err != nil {
		t.Fatal(err)
	}
	b.shows(row("reports/daily"), "bob@batch-2", "page 13 of 40")
	b.truth("it is the same page", `window.stayed`)
	b.shows("#changes", "reports/daily", "ann@batch-1 gave it back", "bob@batch-2 got it")
	stale := lease.Stamp()

	// The operator takes it over.
	b.do("open the key", focus(`a[href="/ui/key?key=reports%2fdaily"]`), chromedp.KeyEvent(kb.Enter), visible(".acts"))
	b.do("open the form", focus(".acts details:first-of-type summary"), chromedp.KeyEvent(kb.Enter),
		visible(".acts details[open] input[name=note]"))
	b.do("without a note", keys(".acts details[open] input[name=note]", kb.Enter))
	b.truth("the browser asks for the note", `document.querySelector(".acts details[open] input[name=note]").matches(":invalid")`)
	b.do("take over", keys(".acts details[open] input[name=note]", "bob writes garbage"+kb.Enter), visible(".done"))
	b.shows("main", "the key was taken over", "opal", "bob writes garbage")

	// Bob does not know yet. His next write is refused, and the page shows it.
	rec, err := s.mem.Get(t.Context(), "reports/daily")
	if err != nil || rec.Owner != "opal" {
		t.Fatal(rec, err)
	}
	guards := `section[aria-labelledby="guards"]`
	b.shows(guards, "not shown", "behind", "of bob@batch-2", "1 admitted")
	if _, err := report.Raise(t.Context(), rec.Stamp()); err != nil {
		t.Fatal(err)
	}
	_, err = report.Write(t.Context(), stale, bytes.NewReader([]byte("14")))
	if !errors.Is(err, fence.ErrStale) {
		t.Fatalf("bob's write: %v", err)
	}
	bob.Refused(stale, report.Target(), err)
	bob.Refused(stale, served.Target(), err)
	b.shows(guards, "up", "of opal", "last ")
	b.shows(`section[aria-labelledby="keyrefused"]`, "bob@batch-2", "write: stale")
	b.picture("key")
	s.wait(7 * time.Second)
	b.do("back to the keys", chromedp.Navigate(s.url+"/ui/"), visible(".tiles"))
	b.shows("#link", "live")
	s.apply(tenure.Request{Verb: tenure.Revoke, Key: "search/index", Actor: "opal", Note: "old mapping"})
	s.hold("search/index", "idx@node-9", "shard 1 of 12", 2*time.Minute)
	b.shows(`[data-part="refusals"]`, "bob@batch-2", "reports/daily")
	b.shows("#changes", "search/index", "taken from idx@node-4, by opal", "idx@node-9 got it")
	s.wait(2 * time.Second)
	b.shows(row("search/index"), "idx@node-9", "shard 1 of 12")
	b.picture("keys")
	b.do("the filter", chromedp.KeyEvent("/"))
	b.truth("the slash leads to the filter", `document.activeElement.id === "prefix"`)
	// The protocol delivers the slash twice: as a key, and as a character.
	b.truth("an empty filter", `(document.activeElement.value = "") === ""`)
	b.do("filter", keys("#prefix", "etl/"+kb.Enter), chromedp.WaitNotPresent(chromedp.CSS(row("reports/daily"))))
	b.shows(".keys", "etl/orders")

	// A dead item is replayed.
	b.do("work", chromedp.Navigate(s.url+"/ui/work"), visible(".rows"))
	b.picture("work")
	b.do("dead items", focus(`a[href="/ui/items?queue=thumbnails&state=dead"]`), chromedp.KeyEvent(kb.Enter),
		visible(fmt.Sprintf(`a[href="/ui/item?id=%s"]`, dead)))
	b.do("the item", focus(fmt.Sprintf(`a[href="/ui/item?id=%s"]`, dead)), chromedp.KeyEvent(kb.Enter), visible(".acts"))
	b.shows("main", "the image server answered 502", `{"scaled": 3}`, "s3://in/4711.png", "1 of 3")
	b.picture("item")
	b.do("replay", keys(".acts input[name=note]", "the image server is back"+kb.Enter), visible(".done"))
	b.shows("main", "was replayed", "waiting")
	if it, err := s.ledger.Get(t.Context(), dead); err != nil || it.State != work.Waiting || it.Record.Actor != "opal" || it.Record.Note != "the image server is back" {
		t.Errorf("after the replay: %+v, %v", it, err)
	}
	b.do("store", chromedp.Navigate(s.url+"/ui/store"), visible(".facts"))
	b.shows("main", "310 MiB free", "make room")
	b.picture("store")
	b.do("refused", chromedp.Navigate(s.url+"/ui/refusals"), visible(".feed"))
	b.picture("refused")

	for _, wrong := range b.complaints() {
		if !strings.Contains(wrong, "401") { // the wrong token
			t.Errorf("the browser says: %s", wrong)
		}
	}

	// A page without its server says so.
	b.do("the keys again", chromedp.Navigate(s.url+"/ui/"), visible(".tiles"))
	b.shows("#link", "live")
	s.stop()
	b.shows("#link.lost", "not ")
	b.truth("the keys are faded", `document.body.classList.contains("lost-page")`)
}

func second[T any](_ T, err error) error { return err }

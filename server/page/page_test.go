package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// rules is an access with the prefix that each name may read and work on. opal
// may also operate there, and boss everywhere.
type rules map[string]string

func (rules) Identify(r *http.Request) (server.Identity, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-of-")
	if !ok {
		return server.Identity{}, errors.New("send a token")
	}
	return server.Identity{Name: name}, nil
}

func (l rules) May(id server.Identity, verb server.Verb, key string) bool {
	if id.Name == "boss" {
		return true
	}
	return l[id.Name] != "" && strings.HasPrefix(key, l[id.Name]) && (verb != server.Operate || id.Name == "opal")
}

// rig is a server with its page on a loopback port, over stores in memory.
type rig struct {
	t      *testing.T
	front  *httptest.Server
	mem    *mem.Store
	ledger work.Ledger
	clock  *storetest.Clock
	acted  chan server.Event
}

func newRig(t *testing.T, access server.Access) *rig {
	t.Helper()
	return newRigWith(t, &server.Options{Access: access}, Options{})
}

// newRigWith makes a rig with options of the server and of the page.
func newRigWith(t *testing.T, o *server.Options, po Options) *rig {
	t.Helper()
	clock := storetest.NewClock()
	r := &rig{
		t: t, clock: clock, mem: mem.New(&mem.Options{Now: clock.Now}),
		ledger: mem.NewLedger(&mem.Options{Now: clock.Now}), acted: make(chan server.Event, 16),
	}
	tell := func(e server.Event) {
		switch e.Kind {
		case server.Acted:
			r.acted <- e
		case server.Failed:
			t.Error(e.Err)
		}
	}
	o.Observe = tell
	api := server.New(r.mem, o)
	po.Access, po.Ledger, po.Store, po.Observe = o.Access, r.ledger, "mem://", tell
	r.front = httptest.NewUnstartedServer(New(api, r.mem, &po))
	r.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.front.Start()
	t.Cleanup(func() {
		api.Drain()
		r.front.Close()
		_ = r.ledger.Close()
	})
	return r
}

// apply changes a key, or fails the test.
func (r *rig) apply(q tenure.Request) tenure.Record {
	r.t.Helper()
	if q.Secret == "" {
		q.Secret = tenure.NewSecret()
	}
	a := r.mem.Apply(context.Background(), []tenure.Request{q})[0]
	if a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return a.Record
}

func (r *rig) hold(key, owner string) tenure.Record {
	r.t.Helper()
	return r.apply(tenure.Request{Verb: tenure.Acquire, Key: key, Owner: owner, TTL: time.Minute})
}

// audited returns the next act in the audit log. It is there before the answer.
func (r *rig) audited() (e server.Event) {
	r.t.Helper()
	select {
	case e = <-r.acted:
	default:
		r.t.Error("no act in the audit log")
	}
	return e
}

// browser keeps a cookie, and follows no redirect.
type browser struct {
	*rig
	cookie *http.Cookie
}

// signIn signs in with a name's token.
func (r *rig) signIn(name string) *browser {
	r.t.Helper()
	b := &browser{rig: r}
	resp, _ := b.post("signin", url.Values{"token": {"token-of-" + name}, "next": {"/ui/work?x=1"}})
	if resp.status != http.StatusSeeOther || resp.header.Get("Location") != "/ui/work?x=1" || len(resp.cookies) != 1 {
		r.t.Fatalf("signing in as %s: %d, to %q", name, resp.status, resp.header.Get("Location"))
	}
	b.cookie = resp.cookies[0]
	return b
}

// reply is an answer without its body.
type reply struct {
	status  int
	header  http.Header
	cookies []*http.Cookie
}

func (b *browser) do(method, path, body string, change func(*http.Request)) (reply, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.front.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.cookie != nil {
		req.AddCookie(b.cookie)
	}
	if change != nil {
		change(req)
	}
	resp, err := (&http.Client{Transport: b.front.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}).Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, resp.Cookies()}, string(text)
}

func (b *browser) get(path string) (reply, string) {
	b.t.Helper()
	return b.do(http.MethodGet, Base+path, "", nil)
}

func (b *browser) post(path string, form url.Values) (reply, string) {
	b.t.Helper()
	return b.do(http.MethodPost, Base+path, form.Encode(), nil)
}

// has checks the status of a page, and that it has all of the words.
func has(t *testing.T, what string, got reply, body string, status int, words ...string) {
	t.Helper()
	if got.status != status {
		t.Errorf("%s: %d; want %d", what, got.status, status)
	}
	for _, word := range words {
		if !strings.Contains(body, word) {
			t.Errorf("%s: the page does not have %q in\n%s", what, word, body)
		}
	}
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// csrf returns the token of the forms on a page.
func csrf(t *testing.T, body string) string {
	t.Helper()
	m := csrfField.FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no form in\n%s", body)
	}
	return m[1]
}

// TestThePageShowsKeysAndTheirOwners: heartbeat and progress apart, keys that
// are stalled, about to lapse or dead, and refused owners.
func TestThePageShowsKeysAndTheirOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := &browser{rig: r}
	dead := r.hold("jobs/dead", "dora")
	r.clock.Advance(2 * time.Minute)
	slow := tenure.NewSecret()
	r.apply(tenure.Request{Verb: tenure.Acquire, Key: "jobs/slow", Owner: "sam", Instance: "sam-1", TTL: time.Hour, Secret: slow, Guards: []string{"postgres://u:pass@db/x#t"}})
	r.apply(tenure.Request{Verb: tenure.Report, Key: "jobs/slow", Secret: slow, Progress: "page 7"})
	r.clock.Advance(20 * time.Minute)
	r.apply(tenure.Request{Verb: tenure.Renew, Key: "jobs/slow", Secret: slow})
	r.hold("jobs/late", "lena")
	r.clock.Advance(45 * time.Second)
	r.apply(tenure.Request{
		Verb: tenure.Revoke, Key: "croft.refused/jobs", Actor: "dora",
		Note: `{"act":"write","code":"stale","key":"jobs/dead","token":7,"target":"out/x.json"}`,
	})
	resp, body := b.get("")
	has(
		t, "keys", resp, body, http.StatusOK, `<b>2</b> held`, `<b>1</b> dead owners`, `<b>1</b> stalled`, `<b>1</b> about to lapse`,
		`<b>1</b> refused today`, "jobs/slow", ">45s</time>", ">20m45s</time> <small><bdi>page 7", `badge expired">dead`, `class="gone"><bdi>dora`,
	)
	if strings.Contains(body, "croft.refused/") {
		t.Error("the page lists Croft's own keys")
	}
	for show, want := range map[string]string{"dead": "jobs/dead", "stalled": "jobs/slow", "lapsing": "jobs/late"} {
		resp, body := b.get("?show=" + show)
		has(t, show, resp, body, http.StatusOK)
		if got := regexp.MustCompile(`class="key" href="[^"]*"><bdi>([^<]*)`).FindAllStringSubmatch(body, -1); len(got) != 1 || got[0][1] != want {
			t.Errorf("%s: %v, want %s", show, got, want)
		}
	}
	resp, body = b.get("key?key=jobs%2Fslow")
	has(t, "a key", resp, body, http.StatusOK, "sam-1", "page 7", "nothing is remembered before it", "db/x#t", "<svg class=\"timeline\"")
	if strings.Contains(body, "pass@") {
		t.Error("the page shows the password in a guard")
	}
	resp, body = b.get("key?key=jobs%2Fdead")
	has(t, "a dead key", resp, body, http.StatusOK, "Its owner was not heard from in time", "out/x.json", fmt.Sprint(dead.Token))
	resp, body = b.get("refusals")
	has(t, "refusals", resp, body, http.StatusOK, "dora", "jobs/dead", "out/x.json")
	resp, body = b.get("store")
	has(t, "store", resp, body, http.StatusOK, "mem://", "Answered in")
	resp, body = b.get("key?key=jobs%2Fnone")
	has(t, "no such key", resp, body, http.StatusNotFound, "Nothing is there")
	resp, _ = b.do(http.MethodGet, "/", "", nil)
	has(t, "the top", resp, "", http.StatusSeeOther)
	resp, body = b.do(http.MethodGet, "/v1/now", "", nil)
	has(t, "the API", resp, body, http.StatusOK, `"now"`)
}

// TestThePageShowsWork: queues, items, their attempts, checkpoints and effects.
func TestThePageShowsWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := &browser{rig: r}
	var ids []work.ID
	for _, payload := range []string{"dead one", "lapsed one", "done one"} {
		it, err := work.Enqueue(t.Context(), r.ledger, "pages", payload, &work.ItemOptions{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, it.ID)
	}
	secret := tenure.NewSecret()
	claimed, err := r.ledger.Claim(t.Context(), work.Claim{Queues: []string{"pages"}, Limit: 3, Secret: secret, Owner: "wanda", TTL: time.Minute})
	if err != nil || len(claimed) != 3 {
		t.Fatal(claimed, err)
	}
	requests := []work.Request{
		{Verb: work.Fail, ID: ids[0], Token: claimed[0].Record.Token, Secret: secret, Error: "no <b>luck</b>", Final: true},
		{Verb: work.Checkpoint, ID: ids[1], Token: claimed[1].Record.Token, Secret: secret, State: []byte("half way")},
		{Verb: work.Complete, ID: ids[2], Token: claimed[2].Record.Token, Secret: secret, Effects: []work.Emission{{Name: "mail", To: "mailer"}}},
	}
	for i, a := range r.ledger.Apply(t.Context(), requests) {
		if a.Err != nil {
			t.Fatal(i, a.Err)
		}
	}
	r.clock.Advance(2 * time.Minute)
	if _, err := r.ledger.Govern(t.Context(), work.RuleChange{Verb: work.Pause, Queue: "pages", Actor: "otto", Note: "<i>ink</i> is out"}); err != nil {
		t.Fatal(err)
	}
	resp, body := b.get("work")
	has(t, "a paused queue", resp, body, http.StatusOK, ">paused</span>", "otto", "&lt;i&gt;ink&lt;/i&gt; is out")
	has(t, "queues", resp, body, http.StatusOK, "pages", `data-label="Dead" class="bad"`, `data-label="Lapsed" class="bad"`, "1 pending")
	resp, body = b.get("items?queue=pages&state=dead")
	has(t, "dead items", resp, body, http.StatusOK, string(ids[0]), "no &lt;b&gt;luck&lt;/b&gt;", "1 of 2", `class="gone"><bdi>wanda`)
	if strings.Contains(body, string(ids[1])) {
		t.Error("an item of another state is listed")
	}
	resp, body = b.get("item?id=" + string(ids[1]))
	has(t, "a lapsed item", resp, body, http.StatusOK, "owner dead", "half way", "lapsed one", ">Requeue</button>")
	resp, body = b.get("item?id=" + string(ids[2]))
	has(t, "a done item", resp, body, http.StatusOK, "mailer", "pending")
	resp, _ = b.get("item?id=" + string(work.NewID()))
	has(t, "no item", resp, "", http.StatusNotFound)

	// A dead item is replayed, and a lapsed one requeued. Both need a note.
	_, body = b.get("item?id=" + string(ids[0]))
	form := url.Values{"csrf": {csrf(t, body)}, "id": {string(ids[0])}, "verb": {"replay"}, "actor": {"opal"}, "token": {"1"}}
	resp, body = b.post("item", form)
	has(t, "without a note", resp, body, http.StatusBadRequest, "Say why")
	form.Set("note", "the server is back")
	resp, body = b.post("item", form)
	has(t, "replay", resp, body, http.StatusSeeOther)
	if it, err := r.ledger.Get(t.Context(), ids[0]); err != nil || it.State != work.Waiting || it.Record.Note != "the server is back" {
		t.Errorf("after the replay: %+v, %v", it, err)
	}
	if e := r.audited(); e.Act != "replay" || e.Actor != "opal" || e.Note != "the server is back" || e.Err != nil || e.Remote == "" {
		t.Errorf("the audit log has %+v", e)
	}
	resp, body = b.post("item", form)
	has(t, "again", resp, body, http.StatusConflict, "only a finished item")
	r.audited()
	form.Set("id", string(ids[1]))
	form.Set("verb", "requeue")
	resp, _ = b.post("item", form)
	has(t, "an old token", resp, "", http.StatusConflict)
	r.audited()
	form.Set("token", fmt.Sprint(claimed[1].Record.Token))
	resp, _ = b.post("item", form)
	has(t, "requeue", resp, "", http.StatusSeeOther)
	if it, err := r.ledger.Get(t.Context(), ids[1]); err != nil || it.State != work.Waiting {
		t.Errorf("after the requeue: %+v, %v", it, err)
	}
	if e := r.audited(); e.Act != "requeue" || e.Actor != "opal" || e.Note == "" {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestAHiddenKeyDoesNotShow in any way: not on a page, in a count, nor in the
// answer to an act.
func TestAHiddenKeyDoesNotShow(t *testing.T) {
	t.Parallel()
	access := rules{"ann": "ann/", "bob": "bob/"}
	full, empty := newRig(t, access), newRig(t, access)
	full.hold("ann/secret", "ann")
	full.apply(tenure.Request{
		Verb: tenure.Revoke, Key: "croft.refused/ann", Actor: "ann", Note: `{"act":"write","code":"stale","key":"ann/secret","token":7}`,
	})
	it, err := work.Enqueue(t.Context(), full.ledger, "ann/queue", "payload", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := work.Enqueue(t.Context(), empty.ledger, "other", "payload", nil); err != nil {
		t.Fatal(err)
	}
	see, hidden := full.signIn("bob"), empty.signIn("bob")
	random := regexp.MustCompile(`name="csrf" value="[^"]+"`) // differs between sessions
	same := func(what string, a, b reply, one, two string) {
		t.Helper()
		if one, two = random.ReplaceAllString(one, ""), random.ReplaceAllString(two, ""); one != two || a.status != b.status {
			t.Errorf("%s: %d, beside a store without the key %d:\n%s\n%s", what, a.status, b.status, one, two)
		}
	}
	for _, path := range []string{
		"", "?show=all", "?prefix=ann/", "key?key=ann%2Fsecret", "refusals", "refusals?prefix=ann/", "work",
		"items", "items?queue=ann%2Fqueue", "item?id=" + string(it.ID),
	} {
		one, text := see.get(path)
		two, other := hidden.get(path)
		same(path, one, two, text, other)
		if strings.Contains(text, "secret</") || strings.Contains(text, string(it.ID)) {
			t.Errorf("%s shows it:\n%s", path, text)
		}
	}
	acts := []struct {
		path string
		form url.Values
	}{
		{"key", url.Values{"key": {"ann/secret"}, "verb": {"revoke"}, "note": {"why"}}},
		{"item", url.Values{"id": {string(it.ID)}, "verb": {"replay"}, "note": {"why"}, "token": {"1"}}},
	}
	for _, act := range acts {
		act.form.Set("csrf", csrf(t, second(see.get(""))))
		one, text := see.post(act.path, act.form)
		act.form.Set("csrf", csrf(t, second(hidden.get(""))))
		two, other := hidden.post(act.path, act.form)
		same(act.path, one, two, text, other)
		has(t, act.path, one, text, http.StatusNotFound)
	}
	ann := full.signIn("ann")
	resp, body := ann.get("")
	has(t, "ann's own", resp, body, http.StatusOK, "ann/secret", "<b>1</b> held", "<b>1</b> refused today")
}

func second[T any](_ reply, v T) T { return v }

// TestActsAreForThoseWhoMay, need a note, and are in the audit log with
// identity and address. The store's own refusals are shown.
func TestActsAreForThoseWhoMay(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/", "opal": "a/"})
	old := r.hold("a/b", "ann")
	ann, opal := r.signIn("ann"), r.signIn("opal")
	_, body := ann.get("key?key=a%2Fb")
	if strings.Contains(body, "Act by hand") {
		t.Error("ann is offered what she may not do")
	}
	form := url.Values{"key": {"a/b"}, "verb": {"takeover"}, "note": {"ann is stuck"}, "ttl": {"10m"}, "actor": {"somebody else"}}
	form.Set("csrf", csrf(t, body))
	resp, text := ann.post("key", form)
	has(t, "ann's takeover", resp, text, http.StatusForbidden, "You may not do this")
	if e := r.audited(); e.Identity != "ann" || e.Err == nil {
		t.Errorf("the audit log has %+v", e)
	}
	_, body = opal.get("key?key=a%2Fb")
	form.Set("csrf", csrf(t, body))
	form.Set("note", " ")
	resp, text = opal.post("key", form)
	has(t, "without a note", resp, text, http.StatusBadRequest, "Say why", "Act by hand")
	form.Set("note", "ann is stuck")
	resp, _ = opal.post("key", form)
	has(t, "the takeover", resp, "", http.StatusSeeOther)
	rec, err := r.mem.Get(t.Context(), "a/b")
	if err != nil || rec.Owner != "opal" || rec.Actor != "opal" || rec.Note != "ann is stuck" || rec.Token <= old.Token || rec.TTL != 10*time.Minute {
		t.Errorf("after the takeover: %+v, %v", rec, err)
	}
	if e := r.audited(); e.Act != tenure.Takeover || e.Identity != "opal" || e.Note != "ann is stuck" || e.Remote == "" || e.Err != nil {
		t.Errorf("the audit log has %+v", e)
	}
	resp, text = opal.get(strings.TrimPrefix(resp.header.Get("Location"), Base))
	has(t, "after it", resp, text, http.StatusOK, "the key was taken over")
	for _, made := range []string{"key=a%2Fb&done=revoke", "key=a%2Fb&done=revoke&proof=" + csrf(t, text)} {
		if _, text := opal.get("key?" + made); strings.Contains(text, "was revoked") {
			t.Errorf("%s: a link makes up an act", made)
		}
	}
	form.Set("verb", "reserve")
	resp, text = opal.post("key", form)
	has(t, "for nobody", resp, text, http.StatusBadRequest, "Name the owner")
	form.Set("owner", "bob")
	resp, _ = opal.post("key", form)
	has(t, "the reservation", resp, "", http.StatusSeeOther)
	form.Set("verb", "revoke")
	resp, _ = opal.post("key", form)
	has(t, "the revocation", resp, "", http.StatusSeeOther)
	form.Set("verb", "acquire")
	resp, _ = opal.post("key", form)
	has(t, "no act by hand", resp, "", http.StatusBadRequest)
	if rec, err := r.mem.Get(t.Context(), "a/b"); err != nil || rec.Owner != "" || len(rec.History) != 4 {
		t.Errorf("in the end: %+v, %v", rec, err)
	}
	for range 2 {
		r.audited() // opal's reservation and revocation
	}
	it, err := work.Enqueue(t.Context(), r.ledger, "a", "payload", nil)
	if err != nil {
		t.Fatal(err)
	}
	form = url.Values{"id": {string(it.ID)}, "verb": {"replay"}, "note": {"once more"}, "csrf": {csrf(t, second(ann.get("")))}}
	resp, text = ann.post("item", form)
	has(t, "ann's replay", resp, text, http.StatusForbidden, "You may not do this")
	if e := r.audited(); e.Identity != "ann" || e.Act != "replay" || e.Err == nil {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestOtherSitesCannotAct: a form needs the token of its session, and a request
// must come from the page itself.
func TestOtherSitesCannotAct(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"opal": "a/"})
	r.hold("a/b", "ann")
	one, two := r.signIn("opal"), r.signIn("opal")
	form := url.Values{"key": {"a/b"}, "verb": {"revoke"}, "note": {"why"}}
	other := csrf(t, second(two.get("key?key=a%2Fb")))
	for what, token := range map[string]string{"none": "", "a made-up one": "x", "that of another session": other} {
		form.Set("csrf", token)
		resp, body := one.post("key", form)
		has(t, what, resp, body, http.StatusForbidden, "An old form")
	}
	form.Set("csrf", csrf(t, second(one.get("key?key=a%2Fb"))))
	for what, change := range map[string]func(*http.Request){
		"another origin": func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") },
		"another site":   func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another name":   func(q *http.Request) { q.Host = "evil.example" },
	} {
		resp, _ := one.do(http.MethodPost, Base+"key", form.Encode(), change)
		has(t, what, resp, "", http.StatusForbidden)
	}
	resp, _ := one.do(http.MethodGet, Base, "", func(q *http.Request) { q.Host = "evil.example" })
	has(t, "looking under another name", resp, "", http.StatusForbidden)
	if rec, _ := r.mem.Get(t.Context(), "a/b"); rec.Owner != "ann" {
		t.Errorf("the key was taken: %+v", rec)
	}
	resp, _ = one.post("signout", url.Values{})
	has(t, "signing others out", resp, "", http.StatusForbidden)
}

// TestASessionIsASealedCookie: scripts, other sites and other processes cannot
// read it, and nothing else signs a visitor in.
func TestASessionIsASealedCookie(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/"})
	b := r.signIn("ann")
	c := b.cookie
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 0 || strings.Contains(c.Value, "token-of-ann") {
		t.Errorf("the cookie is %+v", c)
	}
	resp, body := b.get("")
	has(t, "signed in", resp, body, http.StatusOK, "<bdi>ann</bdi>", "Sign out")
	stranger := &browser{rig: r}
	for what, cookie := range map[string]*http.Cookie{
		"none":                nil,
		"altered":             {Name: c.Name, Value: c.Value[:len(c.Value)-2] + "xx"},
		"of another process":  newRig(t, rules{"ann": "a/"}).signIn("ann").cookie,
		"the token in clear":  {Name: c.Name, Value: "token-of-ann"},
		"over":                {Name: c.Name, Value: newSeal([32]byte{}).close(session{Token: "token-of-ann", Until: 1})},
		"of a name in a path": {Name: c.Name, Value: ""},
	} {
		stranger.cookie = cookie
		resp, body := stranger.get("key?key=a%2Fb")
		has(t, what, resp, body, http.StatusSeeOther)
		if to := resp.header.Get("Location"); to != "/ui/signin?next=%2Fui%2Fkey%3Fkey%3Da%252Fb" {
			t.Errorf("%s: sent to %s", what, to)
		}
		resp, _ = stranger.post("key", url.Values{"key": {"a/b"}})
		has(t, what+", acting", resp, "", http.StatusUnauthorized)
	}
	s := newSeal([32]byte{1})
	if _, ok := s.open(s.close(session{Token: "x", Until: 100}), time.Unix(100, 0)); ok {
		t.Error("a session does not end")
	}
	for what, token := range map[string]string{"empty": "", "wrong": "anns", "spaces": "token-of-ann x", "long": strings.Repeat("x", maxSealed), "long in the cookie": "token-of-" + strings.Repeat("<", maxSealed/5)} {
		resp, body := stranger.post("signin", url.Values{"token": {token}})
		has(t, what, resp, body, http.StatusUnauthorized, `role="alert"`)
		if len(resp.cookies) != 0 || token != "" && strings.Contains(body, token) {
			t.Errorf("%s: the answer tells the token, or signs in", what)
		}
	}
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", `/\evil.example`, "/v1/now", "javascript:alert(1)", "/ui/\r\nX: y", ""} {
		resp, _ := stranger.post("signin", url.Values{"token": {"token-of-ann"}, "next": {next}})
		if to := resp.header.Get("Location"); to != Base {
			t.Errorf("%q leads to %q", next, to)
		}
	}
	resp, _ = b.post("signout", url.Values{"csrf": {csrf(t, second(b.get("")))}})
	if cookies := resp.cookies; len(cookies) != 1 || cookies[0].MaxAge >= 0 {
		t.Errorf("signing out leaves %v", cookies)
	}
}

// TestServersWithOneKeyShareTheirVisitors, so that a balancer may send a
// browser to any of them. A server with another key knows none of them.
func TestServersWithOneKeyShareTheirVisitors(t *testing.T) {
	t.Parallel()
	at := func(key string) *rig {
		return newRigWith(t, &server.Options{Access: rules{"opal": "a/"}}, Options{SessionKey: []byte(key)})
	}
	one, two, other := at("the key of both servers, 32 bytes"), at("the key of both servers, 32 bytes"), at("the key of another, with 32 bytes")
	revoked := newRigWith(t, &server.Options{Access: revoked{rules{"opal": "a/"}}}, Options{SessionKey: []byte("the key of both servers, 32 bytes")})
	for _, r := range []*rig{one, two, other, revoked} {
		r.hold("a/b", "ann")
	}
	b := one.signIn("opal")
	resp, body := b.get("key?key=a%2Fb")
	has(t, "the first", resp, body, http.StatusOK)
	form := url.Values{"key": {"a/b"}, "verb": {"revoke"}, "note": {"why"}, "csrf": {csrf(t, body)}}
	elsewhere := func(r *rig) *browser {
		// Behind a balancer both have the same name and port.
		cookie := *b.cookie
		cookie.Name = "croft-" + r.front.URL[strings.LastIndex(r.front.URL, ":")+1:]
		return &browser{rig: r, cookie: &cookie}
	}
	resp, body = elsewhere(two).get("key?key=a%2Fb")
	has(t, "the second", resp, body, http.StatusOK, "<bdi>opal</bdi>")
	resp, _ = elsewhere(two).post("key", form)
	has(t, "a form of the first at the second", resp, "", http.StatusSeeOther)
	if e := two.audited(); e.Identity != "opal" || e.Err != nil {
		t.Errorf("the audit log has %+v", e)
	}
	resp, _ = elsewhere(other).get("key?key=a%2Fb")
	has(t, "a server with another key", resp, "", http.StatusSeeOther)
	resp, _ = elsewhere(other).post("key", form)
	has(t, "a form there", resp, "", http.StatusUnauthorized)
	resp, _ = elsewhere(revoked).get("key?key=a%2Fb")
	has(t, "a server whose policy has the token no more", resp, "", http.StatusSeeOther)
	resp, _ = elsewhere(revoked).post("key", form)
	has(t, "a form there", resp, "", http.StatusUnauthorized)
}

// revoked is a policy without tokens.
type revoked struct{ rules }

func (revoked) Identify(*http.Request) (server.Identity, error) {
	return server.Identity{}, errors.New("no identity has this token")
}

// TestTheBrowserRunsNothingOfStrangers: what records say is text, and the
// policy of every page forbids all scripts but the page's own.
func TestTheBrowserRunsNothingOfStrangers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := &browser{rig: r}
	const evil = `<script>alert(1)</script>"onmouseover=alert(2) javascript:alert(3)`
	const hidden = "a\u202eb\u2066\u200bc"
	secret := tenure.NewSecret()
	key := "x/" + evil
	r.apply(tenure.Request{
		Verb: tenure.Acquire, Key: key, Owner: evil + hidden, Instance: evil, TTL: time.Hour, Secret: secret,
		Guards: []string{"javascript:alert(4)", evil, hidden},
	})
	r.apply(tenure.Request{Verb: tenure.Report, Key: key, Secret: secret, Progress: evil})
	r.apply(tenure.Request{Verb: tenure.Checkpoint, Key: key, Secret: secret, Checkpoint: evil + "\x00"})
	r.apply(tenure.Request{Verb: tenure.Takeover, Key: key, Actor: hidden, Owner: evil, Note: evil + hidden, TTL: time.Hour})
	it, err := work.Enqueue(t.Context(), r.ledger, "q/"+evil, []byte(evil+hidden+"\x1b"), &work.ItemOptions{Unique: evil})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"", "?prefix=" + url.QueryEscape(evil), "key?key=" + url.QueryEscape(key), "refusals?prefix=" + url.QueryEscape(evil),
		"work", "items?queue=" + url.QueryEscape("q/"+evil), "item?id=" + string(it.ID), "store", "key?key=" + url.QueryEscape(evil), "signin?next=" + url.QueryEscape(evil),
	} {
		resp, body := b.get(path)
		for _, bad := range []string{"<script>", `"onmouseover`, `href="javascript`, "\u202e", "\u2066", "\x1b", "\x00", " style=", "onclick="} {
			if strings.Contains(strings.ToLower(body), bad) {
				t.Errorf("%s has %q in\n%s", path, bad, body)
			}
		}
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s has %d scripts", path, n)
		}
		h := resp.header
		if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	resp, body := b.get("key?key=" + url.QueryEscape(key))
	has(t, "the key", resp, body, http.StatusOK, `\u202e`, `&lt;script&gt;`)
	for _, name := range []string{"page.go", "..%2fpage.go", "x"} {
		resp, _ := b.get("static/" + name)
		has(t, name, resp, "", http.StatusNotFound)
	}
}

// TestListingsAreBounded: each says that there is more.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	b := &browser{rig: r}
	for i := range maxRows + 5 {
		r.hold("many/"+string(rune('a'+i%26))+"/"+time.Duration(i).String(), "ann")
	}
	var adds []work.Request
	for range itemPage + 5 {
		adds = append(adds, work.Request{Verb: work.Add, ID: work.NewID(), Queue: "many"})
	}
	for _, a := range r.ledger.Apply(t.Context(), adds) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	resp, body := b.get("")
	has(t, "keys", resp, body, http.StatusOK, "<b>205</b> held", "and 5 more")
	if n := strings.Count(body, `class="key"`); n != maxRows {
		t.Errorf("%d rows", n)
	}
	resp, body = b.get("items?queue=many")
	has(t, "items", resp, body, http.StatusOK, "Older items")
	older := regexp.MustCompile(`href="(\?queue=many&amp;state=&amp;after=[0-9a-f]+)">Older`).FindStringSubmatch(body)
	if n := strings.Count(body, `class="key"`); n != itemPage || older == nil {
		t.Fatalf("%d items, then %v", n, older)
	}
	resp, body = b.get("items" + strings.ReplaceAll(older[1], "&amp;", "&"))
	has(t, "older items", resp, body, http.StatusOK)
	if n := strings.Count(body, `class="key"`); n != 5 {
		t.Errorf("%d older items", n)
	}
	resp, body = b.post("key", url.Values{"note": {strings.Repeat("x", maxForm)}})
	has(t, "a long form", resp, body, http.StatusBadRequest)
	resp, _ = b.get("?prefix=" + strings.Repeat("x", 600))
	has(t, "a long prefix", resp, "", http.StatusBadRequest)
}

// down is a store that does not answer.
type down struct{ *mem.Store }

func (down) Now(context.Context) (time.Time, error) {
	return time.Time{}, store.Unknown(errors.New("dial db.internal:5432: refused"))
}

// TestAStoreThatDoesNotAnswerIsNoLoss: the page says that nothing is known, and
// tells no addresses.
func TestAStoreThatDoesNotAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	st := down{mem.New(nil)}
	api := server.New(st, nil)
	defer api.Drain()
	var log strings.Builder
	o := &Options{Observe: func(e server.Event) { fmt.Fprintln(&log, e.Kind, e.Err) }}
	w := httptest.NewRecorder()
	New(api, st, o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/ui/", nil))
	if body := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(body, "Leases are not lost") || strings.Contains(body, "db.internal") {
		t.Errorf("%d %s", w.Code, body)
	}
	if !strings.Contains(log.String(), "failed") || !strings.Contains(log.String(), "db.internal") {
		t.Errorf("the server's log has only %q", log.String())
	}
}

// TestThePageStreamsChanges through the cookie, and only those of keys that the
// visitor may read.
func TestThePageStreamsChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/"})
	b := r.signIn("ann")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+Base+"events?prefix=", nil)
	req.AddCookie(b.cookie)
	resp, err := r.front.Client().Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	r.hold("b/hidden", "bob")
	r.hold("a/shown", "ann")
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(text.String(), "a/shown") {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(buf[:n])
	}
	if strings.Contains(text.String(), "hidden") {
		t.Errorf("the stream has %s", text.String())
	}
	cancel()
	if resp, _ := (&browser{rig: r}).get("events"); resp.status != http.StatusSeeOther {
		t.Errorf("without a cookie: %d", resp.status)
	}
}

// TestAStreamEndsWithItsSession: a cookie is good for 12 hours and no more.
func TestAStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := mem.New(nil)
		defer st.Close()
		access := rules{"ann": "a/"}
		api := server.New(st, &server.Options{Access: access})
		p := New(api, st, &Options{Access: access})
		ctx, cancel := context.WithTimeout(t.Context(), 2*sessionFor)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/ui/events", nil)
		until := time.Now().Add(time.Minute)
		req.AddCookie(&http.Cookie{Name: "croft", Value: p.seal.close(session{Token: "token-of-ann", ID: "x", Until: until.Unix()})})
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		if w.Code != http.StatusOK || time.Now().After(until.Add(time.Minute)) {
			t.Errorf("%d; the stream ended %s after its session", w.Code, time.Since(until))
		}
		api.Drain()
	})
}

// certified is an access that knows visitors by their certificate. Here every
// visitor without a token has opal's.
type certified struct{ rules }

func (c certified) Identify(r *http.Request) (server.Identity, error) {
	if r.Header.Get("Authorization") == "" {
		return server.Identity{Name: "opal"}, nil
	}
	return c.rules.Identify(r)
}

// TestACertificateSignsIn, and other sites still cannot act: a browser sends
// the certificate with every request.
func TestACertificateSignsIn(t *testing.T) {
	t.Parallel()
	r := newRig(t, certified{rules{"opal": "a/"}})
	r.hold("a/b", "ann")
	b := &browser{rig: r}
	resp, body := b.get("key?key=a%2Fb")
	has(t, "without a cookie", resp, body, http.StatusOK, "<bdi>opal</bdi>", "Take over")
	if strings.Contains(body, "Sign out") {
		t.Error("the page offers to sign out of a certificate")
	}
	form := url.Values{"key": {"a/b"}, "verb": {"revoke"}, "note": {"why"}}
	resp, _ = b.post("key", form)
	has(t, "without the form's token", resp, "", http.StatusForbidden)
	form.Set("csrf", csrf(t, body))
	resp, _ = b.post("key", form)
	has(t, "with it", resp, "", http.StatusSeeOther)
	if e := r.audited(); e.Identity != "opal" || e.Err != nil {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestOverTLSTheCookieIsForThisHostOnly: the browser sends it to no other host,
// and never in clear.
func TestOverTLSTheCookieIsForThisHostOnly(t *testing.T) {
	t.Parallel()
	st := mem.New(nil)
	access := rules{"ann": "a/"}
	api := server.New(st, &server.Options{Access: access})
	defer api.Drain()
	p := New(api, st, &Options{Access: access})
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://croft.example/ui/signin", strings.NewReader("token=token-of-ann"))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, req)
	got := w.Header().Get("Set-Cookie")
	for _, want := range []string{"__Host-croft=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"} {
		if !strings.Contains(got, want) {
			t.Errorf("the cookie %q has no %s", got, want)
		}
	}
	if strings.Contains(got, "Domain") {
		t.Errorf("the cookie is for other hosts, too: %s", got)
	}
}

// TestBehindAProxyTheCookieIsForTLS: only the browser knows that the proxy adds
// TLS. Servers on two ports of one host do not sign each other's visitors out.
func TestBehindAProxyTheCookieIsForTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/"})
	b := &browser{rig: r}
	form := url.Values{"token": {"token-of-ann"}}
	secure := func(q *http.Request) { q.Header.Set("Origin", "https://"+q.URL.Host) }
	resp, _ := b.do(http.MethodPost, Base+"signin", form.Encode(), secure)
	if len(resp.cookies) != 1 || !resp.cookies[0].Secure || !strings.HasPrefix(resp.cookies[0].Name, "__Host-croft") {
		t.Fatalf("signed in with %v", resp.cookies)
	}
	b.cookie = resp.cookies[0]
	resp, body := b.get("")
	has(t, "signed in", resp, body, http.StatusOK, "<bdi>ann</bdi>")
	resp, _ = b.do(http.MethodPost, Base+"signout", url.Values{"csrf": {csrf(t, body)}}.Encode(), secure)
	if len(resp.cookies) != 1 || resp.cookies[0].MaxAge >= 0 || !resp.cookies[0].Secure || resp.cookies[0].Name != b.cookie.Name {
		t.Errorf("signing out leaves %v", resp.cookies)
	}
	if one, two := r.signIn("ann").cookie, newRig(t, rules{"ann": "a/"}).signIn("ann").cookie; one.Name == two.Name {
		t.Errorf("two servers of one host both use the cookie %s", one.Name)
	}
}

// TestOthersItemsPushOutNothing: a visitor sees all items that it may read,
// however many newer ones are hidden from it.
func TestOthersItemsPushOutNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"bob": "bob/"})
	it, err := work.Enqueue(t.Context(), r.ledger, "bob", "payload", nil)
	if err != nil {
		t.Fatal(err)
	}
	adds := make([]work.Request, 2001)
	for i := range adds {
		adds[i] = work.Request{Verb: work.Add, ID: work.NewID(), Queue: "ann"}
	}
	for some := range slices.Chunk(adds, 500) {
		for _, a := range r.ledger.Apply(t.Context(), some) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	resp, body := r.signIn("bob").get("items")
	has(t, "bob's items", resp, body, http.StatusOK, string(it.ID))
	if n := strings.Count(body, `class="key"`); n != 1 || strings.Contains(body, "Older") {
		t.Errorf("%d items:\n%s", n, body)
	}
}

// slow is a store whose listings of slow/ hang.
type slow struct {
	*mem.Store
	begun, free chan struct{}
}

func (s slow) List(ctx context.Context, prefix string) iter.Seq2[tenure.Record, error] {
	if prefix == "slow/" {
		s.begun <- struct{}{}
		<-s.free
	}
	return s.Store.List(ctx, prefix)
}

// TestOneVisitorLeavesRoomForOthers, however many pages it asks for.
func TestOneVisitorLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	st := slow{mem.New(nil), make(chan struct{}, 2*maxReads), make(chan struct{})}
	access := rules{"ann": "slow/", "bob": "b/"}
	api := server.New(st, &server.Options{Access: access})
	defer api.Drain()
	p := New(api, st, &Options{Access: access})
	get := func(name, path string) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+Base+path, nil)
		sealed := p.seal.close(session{Token: "token-of-" + name, ID: name, Until: time.Now().Add(time.Hour).Unix()})
		req.AddCookie(&http.Cookie{Name: "croft", Value: sealed})
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req)
		return w.Code
	}
	var all sync.WaitGroup
	for range 2 * maxReads {
		all.Go(func() { get("ann", "?prefix=slow/") })
	}
	for range maxOwnReads {
		<-st.begun
	}
	if status := get("bob", ""); status != http.StatusOK {
		t.Errorf("bob's page: %d", status)
	}
	close(st.free)
	all.Wait()
	if n := len(p.own.names); n != 0 {
		t.Errorf("the page remembers %d visitors that have gone", n)
	}
}

// timed is an answer that notes until when a body may arrive.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetReadDeadline(t time.Time) error {
	w.until = t
	return nil
}

// TestABodyThatNobodyReadsHasLittleTime: otherwise it holds its connection for
// ever, because net/http waits for it.
func TestABodyThatNobodyReadsHasLittleTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, rules{"ann": "a/"})
	for _, path := range []string{"/", "/ui/", "/ui/signin", "/ui/static/page.css", "/ui/none", "/healthz", "/v1/openapi.json", "/v1/now", "/v2"} {
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, strings.NewReader("x"))
		r.front.Config.Handler.ServeHTTP(w, req)
		if w.until.IsZero() {
			t.Errorf("GET %s: a body may take for ever", path)
		}
	}
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// workRig is a rig with a ledger in memory.
func workRig(t *testing.T, o *Options) (*rig, *mem.Ledger) {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	base := mem.NewLedger(nil)
	if o.Ledger == nil {
		o.Ledger = base
	}
	return newRig(t, o), base
}

// grants is an access with a name in the token, and rules of words: "NAME VERB
// KEYS".
type grants []string

func (grants) Identify(r *http.Request) (Identity, error) { return rules{}.Identify(r) }

func (g grants) May(id Identity, verb Verb, key string) bool {
	for _, rule := range g {
		word := strings.Fields(rule)
		covers := word[2] == "*" || strings.HasPrefix(key, word[2])
		if word[0] == id.Name && covers && (verb == Read || Verb(word[1]) == verb) {
			return true
		}
	}
	return false
}

// added adds an item straight to a ledger.
func added(t *testing.T, l work.Ledger, queue string) work.ID {
	t.Helper()
	id := work.NewID()
	add := work.Request{Verb: work.Add, ID: id, Queue: queue, Payload: []byte("payload")}
	if a := l.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	return id
}

func itemPath(id work.ID, verb work.Verb) string {
	p := "/v1/work/items/" + string(id)
	if verb != "" {
		p += "/" + string(verb)
	}
	return p
}

// claimed reads the answer to a claim, which must have one item.
func claimed(t *testing.T, status int, body string) work.Item {
	t.Helper()
	items, err := wire.ReadClaimed([]byte(body))
	if status != http.StatusOK || err != nil || len(items) != 1 {
		t.Fatalf("a claim: %d %s, %v; want one item", status, body, err)
	}
	return items[0].Item
}

func owned(it work.Item, n int) string {
	return fmt.Sprintf(`"token":%d,%s`, it.Record.Token, secret(n))
}

// TestAnItemFromItsAddToItsCompletion goes the way of a thin client.
func TestAnItemFromItsAddToItsCompletion(t *testing.T) {
	t.Parallel()
	r, base := workRig(t, nil)
	id := work.NewID()
	for range 2 { // asked again, it is the same item
		if status, body := r.post(itemPath(id, work.Add), `{"queue":"thumbs","payload":"cGF5bG9hZA=="}`); status != http.StatusOK ||
			!strings.Contains(body, `"state":"waiting"`) {
			t.Fatalf("add: %d %s", status, body)
		}
	}
	status, body := r.post("/v1/work/claim", `{"queues":["thumbs"],`+secret(1)+`,"owner":"ann"}`)
	it := claimed(t, status, body)
	if it.ID != id || string(it.Payload) != "payload" || it.Record.Owner != "ann" {
		t.Fatalf("claimed %+v", it)
	}
	for verb, more := range map[work.Verb]string{
		work.Heartbeat: `,"ttl":"5m"`, work.Report: `,"progress":"half"`, work.Checkpoint: `,"state":"aGFsZg=="`,
	} {
		if status, body := r.post(itemPath(id, verb), `{`+owned(it, 1)+more+`}`); status != http.StatusOK {
			t.Errorf("%s: %d %s", verb, status, body)
		}
	}
	status, body = r.post(itemPath(id, work.Complete), `{`+owned(it, 2)+`}`)
	refused(t, "with another's secret", status, body, http.StatusConflict, wire.Collision)
	done := `{` + owned(it, 1) + `,"result":"ZG9uZQ==","effects":[{"name":"mail","body":"aGk="}]}`
	if status, body := r.post(itemPath(id, work.Complete), done); status != http.StatusOK || !strings.Contains(body, `"state":"done"`) {
		t.Fatalf("complete: %d %s", status, body)
	}
	if status, body := r.post(itemPath(id, work.Complete), done); status != http.StatusOK ||
		!strings.Contains(body, `"repeated":true`) || !strings.Contains(body, `"result":"ZG9uZQ=="`) {
		t.Errorf("complete again: %d %s", status, body)
	}
	status, body = r.post(itemPath(id, work.Fail), `{`+owned(it, 1)+`}`)
	refused(t, "failing what is done", status, body, http.StatusConflict, wire.State)
	status, body = r.get(itemPath(work.NewID(), ""))
	refused(t, "no such item", status, body, http.StatusNotFound, wire.NotFound)
	status, body = r.post(itemPath(id, "steal"), `{`+owned(it, 1)+`}`)
	refused(t, "no such verb", status, body, http.StatusBadRequest, wire.Invalid)
	for path, want := range map[string]string{
		itemPath(id, ""): `"result":"ZG9uZQ=="`, "/v1/work/items?queue=thumbs&state=done": string(id), "/v1/work/stats": `"done":1`,
		"/v1/work/effects?item=" + string(id): `"body":"aGk="`, "/v1/work/refusals": `"why":"collision"`, "/v1/work/now": `"now"`,
	} {
		if status, body := r.get(path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s; want %s", path, status, body, want)
		}
	}
	if it, err := base.Get(t.Context(), id); err != nil || it.State != work.Done {
		t.Errorf("the ledger has %s, %v", it.State, err)
	}
}

// TestTheStampOfAnItemCanBeVerified: it is issued, and current until its owner
// gives the item back.
func TestTheStampOfAnItemCanBeVerified(t *testing.T) {
	t.Parallel()
	r, base := workRig(t, nil)
	id := added(t, base, "q")
	status, body := r.post("/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"ann"}`)
	it := claimed(t, status, body)
	verify := func(stamp fence.Stamp, want string) {
		t.Helper()
		if status, body := r.post("/v1/verify", `{"stamp":"`+stamp.String()+`"}`); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d %s; want %s", status, body, want)
		}
	}
	stamp := it.Record.Stamp()
	verify(stamp, `"issued":true,"current":true`)
	forged := stamp
	forged.Token++
	verify(forged, `"issued":false,"current":false`)
	if status, body := r.post(itemPath(id, work.Release), `{`+owned(it, 1)+`}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	verify(stamp, `"issued":true,"current":false`)
	lease := acquireOf("q/"+string(work.NewID()), "ann") // a lease whose key looks like that of an item
	if a := r.mem.Apply(t.Context(), []tenure.Request{lease})[0]; a.Err != nil {
		t.Fatal(a.Err)
	} else {
		verify(a.Record.Stamp(), `"issued":true,"current":true`)
	}
}

// TestBadCallsAboutItemsAreRefused before anything is done.
func TestBadCallsAboutItemsAreRefused(t *testing.T) {
	t.Parallel()
	r, base := workRig(t, nil)
	id := work.NewID()
	add := itemPath(id, work.Add)
	for what, c := range map[string][2]string{
		"an unknown member":     {add, `{"queue":"q","when":"now"}`},
		"a member twice":        {add, `{"queue":"q","queue":"q"}`},
		"null":                  {add, `{"queue":null}`},
		"no base64":             {add, `{"queue":"q","payload":"!"}`},
		"a bad queue":           {add, `{"queue":""}`},
		"a bad id":              {"/v1/work/items/x/add", `{"queue":"q"}`},
		"no queue to claim":     {"/v1/work/claim", `{"queues":[],` + secret(1) + `,"owner":"ann"}`},
		"too many items":        {"/v1/work/claim", `{"queues":["q"],"limit":1001,` + secret(1) + `,"owner":"ann"}`},
		"a long wait":           {"/v1/work/claim", `{"queues":["q"],` + secret(1) + `,"owner":"ann","wait":"61m"}`},
		"an act without a note": {itemPath(id, work.Cancel), `{` + secret(1) + `,"actor":"ann"}`},
		"no stamp":              {"/v1/work/take", `{"limit":1,"hold":"1m"}`},
		"no effect":             {"/v1/work/settle", `{"requests":[{"effect":"x","attempt":1,"state":"sent"}]}`},
		"no limit":              {"/v1/work/prune", `{}`},
	} {
		status, body := r.post(c[0], c[1])
		refused(t, what, status, body, http.StatusBadRequest, wire.Invalid)
	}
	for _, path := range []string{
		"/v1/work/items?queue=a&queue=b", "/v1/work/items?state=odd", "/v1/work/items?limit=-1", "/v1/work/items?x=1",
		"/v1/work/items?after=x", "/v1/work/effects?after=x", "/v1/work/effects?orphaned=1", "/v1/work/refusals?since=today",
		"/v1/work/stats?queue=%00", "/v1/work/wake?queue=%00", "/v1/work/items/x",
	} {
		status, body := r.get(path)
		refused(t, path, status, body, http.StatusBadRequest, wire.Invalid)
	}
	one := `{"verb":"complete","id":"` + string(id) + `","token":1,` + secret(1) + `}`
	status, body := r.post("/v1/work/apply", `{"requests":[`+strings.Repeat(one+",", 64)+one+`]}`)
	refused(t, "a batch that is too heavy", status, body, http.StatusBadRequest, wire.Invalid)
	for what, size := range map[string]int64{"too long": wire.MaxWorkBody + 1, "of unknown length": -1} {
		req := r.request(http.MethodPost, "/v1/work/apply", `{}`)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", wire.MaxBody+1))), size
		resp, err := r.front.Client().Do(req)
		if err != nil { // the server may end the connection before it has all
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body %s: %s", what, resp.Status)
		}
	}
	if stats, err := base.Stats(t.Context(), ""); err != nil || len(stats) != 0 {
		t.Errorf("the ledger has %+v, %v", stats, err)
	}
}

// TestAServerWithoutALedgerRefusesWork, and says why.
func TestAServerWithoutALedgerRefusesWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, path := range []string{"/v1/work/items", "/v1/work/now", "/v1/work/wake?queue=q"} {
		status, body := r.get(path)
		refused(t, path, status, body, http.StatusNotImplemented, wire.Unsupported)
	}
	status, body := r.post("/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"ann"}`)
	refused(t, "a claim", status, body, http.StatusNotImplemented, wire.Unsupported)
}

// TestAHiddenItemDoesNotExist: bob's answers about ann's items are those about
// items that were never added.
func TestAHiddenItemDoesNotExist(t *testing.T) {
	t.Parallel()
	r, base := workRig(t, &Options{Access: grants{"ann acquire anns", "ann work anns", "ann add anns", "bob operate bobs", "bob add bobs"}})
	hidden, absent := added(t, base, "anns"), work.NewID()
	items, err := base.Claim(t.Context(), work.Claim{
		Queues: []string{"anns"}, Limit: 1, Secret: tenure.Secret(fmt.Sprintf("%032x", 1)), Owner: "ann", TTL: time.Hour,
	})
	if err != nil || len(items) != 1 {
		t.Fatal(err)
	}
	bob := func(method, path, body string) (int, string) { return r.do(as("bob", r.request(method, path, body))) }
	for _, verb := range work.Verbs {
		body := `{` + owned(items[0], 1) + `,"note":"why","owner":"bob"}`
		if verb == work.Add {
			body = `{"queue":"anns"}`
		}
		status, got := bob(http.MethodPost, itemPath(hidden, verb), body)
		_, want := bob(http.MethodPost, itemPath(absent, verb), body)
		refused(t, string(verb), status, got, http.StatusNotFound, wire.NotFound)
		if got != strings.ReplaceAll(want, string(absent), string(hidden)) {
			t.Errorf("%s: %s\nof an item that is not there: %s", verb, got, want)
		}
	}
	status, got := bob(http.MethodGet, itemPath(hidden, ""), "")
	_, want := bob(http.MethodGet, itemPath(absent, ""), "")
	refused(t, "reading", status, got, http.StatusNotFound, wire.NotFound)
	if got != strings.ReplaceAll(want, string(absent), string(hidden)) {
		t.Errorf("reading: %s\nof an item that is not there: %s", got, want)
	}
	// An ID that is taken is a conflict, which shows nothing of the item.
	if _, got := bob(http.MethodPost, itemPath(hidden, work.Add), `{"queue":"bobs"}`); !strings.Contains(got, string(wire.Conflict)) ||
		strings.Contains(got, "ann") {
		t.Errorf("adding under its id: %s", got)
	}
	for _, path := range []string{
		"/v1/work/items", "/v1/work/items?queue=anns", "/v1/work/items?owner=ann&limit=1", "/v1/work/effects", "/v1/work/refusals",
		"/v1/work/stats", "/v1/work/stats?queue=anns", "/v1/work/effects?item=" + string(hidden), "/v1/work/refusals?queue=anns",
	} {
		if status, body := bob(http.MethodGet, path, ""); status != http.StatusOK || body != "" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	claim := func(queue string) (int, string) {
		return bob(http.MethodPost, "/v1/work/claim", `{"queues":["`+queue+`"],`+secret(1)+`,"again":true}`)
	}
	status, got = claim("anns")
	_, want = claim("none")
	refused(t, "claiming", status, got, http.StatusNotFound, wire.NotFound)
	if got != want {
		t.Errorf("claiming: %s\nfrom a queue that is not there: %s", got, want)
	}
	status, got = bob(http.MethodGet, "/v1/work/wake?queue=anns", "")
	refused(t, "hints", status, got, http.StatusNotFound, wire.NotFound)
	effect := (work.EffectID{Item: hidden, Name: "x"}).String()
	_, got = bob(http.MethodPost, "/v1/work/settle", `{"requests":[{"effect":"`+effect+`","attempt":1,"state":"sent","note":"why"}]}`)
	if !strings.Contains(got, string(wire.NotFound)) || strings.Contains(got, "ann") {
		t.Errorf("settling: %s", got)
	}
	if it, err := base.Get(t.Context(), hidden); err != nil || it.State != work.Running || it.Record.Owner != "ann" {
		t.Errorf("ann's item is %s, of %s, %v", it.State, it.Record.Owner, err)
	}
}

// TestEveryVerbNeedsItsRight: deny by default, also in a queue that one may
// read.
func TestEveryVerbNeedsItsRight(t *testing.T) {
	t.Parallel()
	r, base := workRig(t, &Options{Access: grants{
		"reader read q", "adder add q", "claimer acquire q", "worker work q", "opal operate q", "root operate *",
	}})
	id := added(t, base, "q")
	names := []string{"reader", "adder", "claimer", "worker", "opal", "root"}
	stamp := fence.Stamp{Key: "work/dispatch", Token: 7, Grant: tenure.NewSecret().Grant()}
	effect := (work.EffectID{Item: id, Name: "x"}).String()
	for what, c := range map[string]struct {
		path, body string
		may        []string
	}{
		"add":       {itemPath(work.NewID(), work.Add), `{"queue":"q"}`, []string{"adder"}},
		"claim":     {"/v1/work/claim", `{"queues":["q"],` + secret(1) + `}`, []string{"claimer"}},
		"heartbeat": {itemPath(id, work.Heartbeat), `{"token":7,` + secret(1) + `}`, []string{"worker"}},
		"requeue":   {itemPath(id, work.Requeue), `{"token":7,` + secret(1) + `}`, []string{"worker"}},
		"cancel":    {itemPath(id, work.Cancel), `{` + secret(1) + `,"note":"why"}`, []string{"opal", "root"}},
		"take":      {"/v1/work/take", `{"stamp":"` + stamp.String() + `","limit":1,"hold":"1m"}`, []string{"root"}},
		"settle": {
			"/v1/work/settle", `{"requests":[{"effect":"` + effect + `","attempt":1,"state":"sent","stamp":"` + stamp.String() + `"}]}`,
			[]string{"root"},
		},
		"settle by hand": {
			"/v1/work/settle", `{"requests":[{"effect":"` + effect + `","attempt":1,"state":"sent","note":"why"}]}`,
			[]string{"opal", "root"},
		},
		"pause": {"/v1/work/rules", `{"verb":"pause","queue":"q","note":"why"}`, []string{"opal", "root"}},
		"prune": {"/v1/work/prune", `{"limit":1,"done":"1h"}`, []string{"root"}},
	} {
		for _, name := range names {
			_, body := r.do(as(name, r.request(http.MethodPost, c.path, c.body)))
			want := strings.Contains(strings.Join(c.may, " "), name)
			if allowed := !strings.Contains(body, string(wire.NotAllowed)); allowed != want {
				t.Errorf("%s may %s: %v, want %v: %s", name, what, allowed, want, body)
			}
		}
	}
	for _, name := range names {
		status, body := r.do(as(name, r.request(http.MethodGet, "/v1/work/wake?effects=true", "")))
		if name != "root" {
			refused(t, name+" waits for effects", status, body, http.StatusForbidden, wire.NotAllowed)
		}
		if name == "opal" {
			break // root's stream would stay open
		}
	}
}

// TestTheOwnerOfAnItemIsTheIdentity, and so is the actor of an act by hand,
// which is in the audit log.
func TestTheOwnerOfAnItemIsTheIdentity(t *testing.T) {
	t.Parallel()
	acted := make(chan Event, 16)
	r, base := workRig(t, &Options{
		Access: grants{"ann acquire q", "bob acquire q", "opal operate q"},
		Observe: func(e Event) {
			if e.Kind == Acted {
				acted <- e
			}
		},
	})
	id := added(t, base, "q")
	claim := func(name string, more string) (int, string) {
		return r.do(as(name, r.request(http.MethodPost, "/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"root"`+more+`}`)))
	}
	status, body := claim("ann", "")
	if it := claimed(t, status, body); it.Record.Owner != "ann" {
		t.Errorf("the owner is %q", it.Record.Owner)
	}
	// bob knows ann's secret. Her item is not his all the same.
	if status, body := claim("bob", `,"again":true`); status != http.StatusOK || strings.Contains(body, string(id)) {
		t.Errorf("bob claims with ann's secret: %d %s", status, body)
	}
	status, body = claim("ann", `,"again":true`)
	if it := claimed(t, status, body); it.ID != id {
		t.Errorf("ann claims again, and gets %s", it.ID)
	}
	for i, verb := range []work.Verb{work.Takeover, work.Reassign, work.Cancel, work.Replay} {
		act := `{` + secret(10+i) + `,"actor":"ann","owner":"cleo","note":"why"}`
		status, body := r.do(as("opal", r.request(http.MethodPost, itemPath(id, verb), act)))
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", verb, status, body)
		}
		it, err := base.Get(t.Context(), id)
		want := map[work.Verb]string{work.Takeover: "opal", work.Reassign: "cleo", work.Cancel: "", work.Replay: "opal"}[verb]
		if err != nil || it.Record.Actor != "opal" || it.Record.Owner != want {
			t.Errorf("%s: the record has actor %q and owner %q, %v; want opal and %q", verb, it.Record.Actor, it.Record.Owner, err, want)
		}
		if e := <-acted; e.Identity != "opal" || e.Actor != "opal" || string(e.Act) != string(verb) ||
			e.Key != "q/"+string(id) || e.Note != "why" || e.Remote == "" || e.Err != nil {
			t.Errorf("%s is audited as %+v", verb, e)
		}
	}
	r.do(as("ann", r.request(http.MethodPost, itemPath(id, work.Cancel), `{`+secret(20)+`,"actor":"opal","note":"why"}`)))
	if e := <-acted; e.Identity != "ann" || e.Actor != "ann" || e.Err == nil {
		t.Errorf("a refused act is audited as %+v", e)
	}
}

// TestARefusedActIsShortInTheAuditLog: a client that may do nothing cannot fill
// the log with texts that no act may have.
func TestARefusedActIsShortInTheAuditLog(t *testing.T) {
	t.Parallel()
	acted := make(chan Event, 4)
	r, _ := workRig(t, &Options{Access: grants{"ann read q"}, Observe: func(e Event) {
		if e.Kind == Acted {
			acted <- e
		}
	}})
	long := strings.Repeat("é", 40<<10)
	effect := (work.EffectID{Item: work.NewID(), Name: "x"}).String()
	for path, body := range map[string]string{
		itemPath(work.NewID(), work.Cancel): `{` + secret(1) + `,"owner":"` + long + `","note":"` + long + `"}`,
		"/v1/work/apply":                    `{"requests":[{"verb":"cancel","id":"` + long + `",` + secret(1) + `,"note":"why"}]}`,
		"/v1/work/settle":                   `{"requests":[{"effect":"` + effect + `","attempt":1,"state":"` + long + `","note":"` + long + `"}]}`,
		path("q/x", "revoke"):               `{` + secret(1) + `,"note":"` + long + `"}`,
		"/v1/work/rules":                    `{"verb":"pause","queue":"q","note":"` + long + `"}`,
	} {
		_, answer := r.do(as("ann", r.request(http.MethodPost, path, body)))
		e := <-acted
		if n := len(e.Key) + len(e.Owner) + len(e.Actor) + len(e.Note); e.Err == nil || n+len(e.Err.Error()) > 4096 {
			t.Errorf("%.60s: %d bytes in the log, %v: %.200s", path, n, e.Err, answer)
		}
	}
}

// TestAPauseIsTheIdentitysAct: the rule names the identity, whatever actor the
// client gives. Others do not see it, and the server's own waiters are woken by
// the resume.
func TestAPauseIsTheIdentitysAct(t *testing.T) {
	t.Parallel()
	acted := make(chan Event, 4)
	r, base := workRig(t, &Options{Access: grants{"opal operate q", "bob operate other"}, Observe: func(e Event) {
		if e.Kind == Acted {
			acted <- e
		}
	}})
	for _, verb := range []work.Verb{work.Pause, work.Resume} {
		body := `{"verb":"` + string(verb) + `","queue":"q","actor":"mallory","note":"why"}`
		status, answer := r.do(as("opal", r.request(http.MethodPost, "/v1/work/rules", body)))
		rule, err := wire.ReadRule([]byte(answer))
		if status != http.StatusOK || err != nil || rule.Actor != "opal" || rule.Paused != (verb == work.Pause) {
			t.Errorf("%s: %d %s", verb, status, answer)
		}
		if e := <-acted; string(e.Act) != string(verb) || e.Actor != "opal" || e.Key != "q" || e.Note != "why" || e.Err != nil {
			t.Errorf("the audit log has %+v", e)
		}
	}
	for kept, err := range base.Rules(t.Context(), work.RuleQuery{}) {
		if err != nil || kept.Actor != "opal" {
			t.Errorf("the ledger keeps %+v, %v", kept, err)
		}
	}
	for name, want := range map[string]int{"opal": 1, "bob": 0} {
		_, body := r.do(as(name, r.request(http.MethodGet, "/v1/work/rules", "")))
		if got := strings.Count(body, `"queue"`); got != want {
			t.Errorf("%s sees %d rules, want %d: %s", name, got, want, body)
		}
	}
}

// heldBack is a ledger whose claims have their effect, and are answered when
// the test says so.
type heldBack struct {
	work.Ledger
	claimed chan struct{} // receives when a claim has had its effect
	answer  chan struct{} // closed when claims may be answered
	claims  atomic.Int32
}

func (h *heldBack) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	h.claims.Add(1)
	items, err := h.Ledger.Claim(ctx, c)
	if h.claimed != nil {
		h.claimed <- struct{}{}
		<-h.answer
	}
	return items, err
}

// TestAClaimWhoseClientHasLeftIsGivenBack: the attempt does not count, and the
// next worker gets the item at once.
func TestAClaimWhoseClientHasLeftIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.NewLedger(nil)
		l := &heldBack{Ledger: base, claimed: make(chan struct{}), answer: make(chan struct{})}
		srv := New(mem.New(nil), &Options{Ledger: l})
		defer srv.Drain()
		id := added(t, base, "q")
		ctx, leave := context.WithCancel(t.Context())
		go serve(ctx, srv, "/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"ann","ttl":"1h"}`)
		<-l.claimed
		leave()
		synctest.Wait()
		close(l.answer)
		synctest.Wait()
		if it, err := base.Get(t.Context(), id); err != nil || it.State != work.Waiting || it.Attempts != 0 {
			t.Errorf("the item is %s in attempt %d, %v; want it waiting", it.State, it.Attempts, err)
		}
	})
}

// TestAClaimThatIsSentAgainKeepsItsItems: the connection broke, and the client
// has already asked again on another.
func TestAClaimThatIsSentAgainKeepsItsItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.NewLedger(nil)
		l := &heldBack{Ledger: base, claimed: make(chan struct{}), answer: make(chan struct{})}
		srv := New(mem.New(nil), &Options{Ledger: l})
		defer srv.Drain()
		id := added(t, base, "q")
		ctx, leave := context.WithCancel(t.Context())
		body := `{"queues":["q"],` + secret(1) + `,"owner":"ann","ttl":"1h"`
		go serve(ctx, srv, "/v1/work/claim", body+`}`)
		<-l.claimed
		leave()
		again := make(chan string, 1)
		go func() {
			_, got := serve(t.Context(), srv, "/v1/work/claim", body+`,"again":true}`)
			again <- got
		}()
		synctest.Wait()
		close(l.answer)
		if got := claimed(t, http.StatusOK, <-again); got.ID != id || got.Attempts != 1 {
			t.Errorf("asked again, the claim got %+v", got)
		}
		synctest.Wait()
		if it, err := base.Get(t.Context(), id); err != nil || it.State != work.Running || l.claims.Load() != 1 {
			t.Errorf("the item is %s after %d claims, %v; want it running", it.State, l.claims.Load(), err)
		}
	})
}

// lateClaim is a ledger whose first claim has its effect when the test says so.
type lateClaim struct {
	work.Ledger
	claims atomic.Int32
	begun  chan struct{} // closed when the first claim has come
	effect chan struct{} // closed when it may have its effect
}

func (l *lateClaim) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if l.claims.Add(1) == 1 {
		close(l.begun)
		<-l.effect
	}
	return l.Ledger.Claim(ctx, c)
}

// TestAClaimThatIsSentThriceTakesItemsOnce: the client leaves a claim under
// way, asks again, and leaves again. If it then asks a third time, it gets the
// items of the first claim and no others. If it does not, they are given back.
func TestAClaimThatIsSentThriceTakesItemsOnce(t *testing.T) {
	t.Parallel()
	for _, third := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			base := mem.NewLedger(nil)
			l := &lateClaim{Ledger: base, begun: make(chan struct{}), effect: make(chan struct{})}
			srv := New(mem.New(nil), &Options{Ledger: l})
			defer srv.Drain()
			added(t, base, "q")
			added(t, base, "q")
			body := `{"queues":["q"],` + secret(1) + `,"owner":"ann","ttl":"1h"`
			ctx, leave := context.WithCancel(t.Context())
			go serve(ctx, srv, "/v1/work/claim", body+`}`)
			<-l.begun
			leave()
			ctx, leave = context.WithCancel(t.Context())
			go serve(ctx, srv, "/v1/work/claim", body+`,"again":true}`)
			synctest.Wait()
			leave()
			synctest.Wait()
			got := make(chan string, 1)
			if third {
				go func() {
					_, answer := serve(t.Context(), srv, "/v1/work/claim", body+`,"again":true}`)
					got <- answer
				}()
				synctest.Wait()
			}
			close(l.effect)
			want := int64(0)
			if third {
				want = 1
				claimed(t, http.StatusOK, <-got)
			}
			synctest.Wait()
			stats, err := base.Stats(t.Context(), "q")
			if err != nil || len(stats) != 1 || stats[0].Running != want {
				t.Errorf("asked a third time: %t; %+v, %v; want %d running", third, stats, err, want)
			}
			if n := len(srv.ledger.claims.call); n != 0 {
				t.Errorf("%d claims are still under way", n)
			}
		})
	}
}

// TestAWaitingClaimWhoseClientLeavesTakesNothing: it is not sent to the ledger
// any more.
func TestAWaitingClaimWhoseClientLeavesTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.NewLedger(nil)
		l := &heldBack{Ledger: base}
		srv := New(mem.New(nil), &Options{Ledger: l})
		defer srv.Drain()
		ctx, leave := context.WithCancel(t.Context())
		go serve(ctx, srv, "/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"ann","wait":"30m"}`)
		synctest.Wait()
		before := l.claims.Load()
		leave()
		synctest.Wait()
		id := added(t, base, "q")
		time.Sleep(time.Minute)
		if it, err := base.Get(t.Context(), id); err != nil || it.State != work.Waiting || before == 0 || l.claims.Load() != before {
			t.Errorf("the item is %s after %d claims, %d of them later; %v", it.State, l.claims.Load(), l.claims.Load()-before, err)
		}
	})
}

// TestAClaimWaitsForAnItem, and gets it soon after it is added. A claim whose
// wait is over, or whose server stops, gets nothing.
func TestAClaimWaitsForAnItem(t *testing.T) {
	t.Parallel()
	for what, l := range map[string]func(*mem.Ledger) work.Ledger{
		"with hints":    func(base *mem.Ledger) work.Ledger { return base },
		"without hints": func(base *mem.Ledger) work.Ledger { return &heldBack{Ledger: base} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := mem.NewLedger(nil)
				srv := New(mem.New(nil), &Options{Ledger: l(base)})
				wait := func(n int, wait string) (int, string) {
					return serve(t.Context(), srv, "/v1/work/claim", fmt.Sprintf(`{"queues":["q"],%s,"owner":"ann","wait":%q}`, secret(n), wait))
				}
				got := make(chan string, 1)
				go func() { _, body := wait(1, "30m"); got <- body }()
				synctest.Wait()
				begun := time.Now()
				id := added(t, base, "q")
				if it := claimed(t, http.StatusOK, <-got); it.ID != id || time.Since(begun) > 2*time.Second {
					t.Errorf("after %s: %+v", time.Since(begun), it)
				}
				if status, body := wait(2, "10s"); status != http.StatusOK || body != `{"items":[]}`+"\n" {
					t.Errorf("a wait that is over: %d %s", status, body)
				}
				go func() { _, body := wait(3, "30m"); got <- body }()
				synctest.Wait()
				srv.Drain()
				if body := <-got; !strings.Contains(body, string(wire.Busy)) {
					t.Errorf("after draining: %s", body)
				}
			})
		})
	}
}

// TestAServerGivesHintsOfItsOwn: its ledger gives none, and what one client
// adds wakes another that waits.
func TestAServerGivesHintsOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := New(mem.New(nil), &Options{Ledger: &heldBack{Ledger: mem.NewLedger(nil)}})
		defer srv.Drain()
		hints, _, err := srv.ledger.wake(t.Context(), work.Wanted{Effects: true})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		go func() {
			_, body := serve(t.Context(), srv, "/v1/work/claim", `{"queues":["q"],`+secret(1)+`,"owner":"ann","wait":"30m"}`)
			got <- body
		}()
		synctest.Wait()
		begun, id := time.Now(), work.NewID()
		if status, body := serve(t.Context(), srv, itemPath(id, work.Add), `{"queue":"q"}`); status != http.StatusOK {
			t.Fatal(status, body)
		}
		it := claimed(t, http.StatusOK, <-got)
		if it.ID != id || time.Since(begun) > 0 {
			t.Errorf("after %s: %+v", time.Since(begun), it)
		}
		if len(hints) != 0 {
			t.Error("an added item woke a dispatcher")
		}
		done := `{` + owned(it, 1) + `,"effects":[{"name":"mail"}]}`
		if status, body := serve(t.Context(), srv, itemPath(id, work.Complete), done); status != http.StatusOK || len(hints) != 1 {
			t.Errorf("an effect: %d %s, %d hints", status, body, len(hints))
		}
	})
}

// TestClientsOfOtherQueuesCostARequestNothing: a client that waits for many
// queues on many streams does not slow down the work of others.
func TestClientsOfOtherQueuesCostARequestNothing(t *testing.T) {
	t.Parallel()
	var h hints
	ctx, end := context.WithCancel(t.Context())
	var queues []string
	for i := range wire.MaxQueues {
		queues = append(queues, fmt.Sprintf("others/%0100d", i))
	}
	for range 200 {
		h.wake(ctx, work.Wanted{Queues: queues, Effects: true})
	}
	mine := h.wake(ctx, work.Wanted{Queues: []string{"mine"}})
	if n := len(h.waiting["mine"]); n != 1 {
		t.Errorf("a request in my queue looks at %d clients, want 1", n)
	}
	h.tell(work.Request{Verb: work.Add}, work.Answer{Item: work.Item{Queue: "mine", State: work.Waiting}})
	if len(mine) != 1 {
		t.Error("a request in my queue has not woken me")
	}
	end()
	testenv.Eventually(t, "nobody is remembered", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.waiting); n != 0 {
			return fmt.Errorf("%d queues are", n)
		}
		return nil
	})
}

// counting is a ledger that counts calls and requests.
type counting struct {
	work.Ledger
	calls, requests atomic.Int32
	hold            <-chan struct{}
}

func (l *counting) Apply(ctx context.Context, requests []work.Request) []work.Answer {
	l.calls.Add(1)
	l.requests.Add(int32(len(requests)))
	<-l.hold
	return l.Ledger.Apply(ctx, requests)
}

// TestClientsShareCallsOfTheLedger: requests that arrive together go out
// together, and each client gets its own answer.
func TestClientsShareCallsOfTheLedger(t *testing.T) {
	t.Parallel()
	const clients = 100
	hold := make(chan struct{})
	base := mem.NewLedger(nil)
	l := &counting{Ledger: base, hold: hold}
	r, _ := workRig(t, &Options{Ledger: l})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			id := work.NewID()
			status, body := r.post(itemPath(id, work.Add), `{"queue":"q","payload":"cGF5bG9hZA=="}`)
			var got struct{ Item work.Item }
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || got.Item.ID != id {
				t.Errorf("%s: %d %s", id, status, body)
			}
		})
	}
	testenv.Eventually(t, "all have asked", func() error {
		b := r.srv.ledger.batcher
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := b.size + int(l.requests.Load()); n != clients {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	close(hold)
	all.Wait()
	if n := l.calls.Load(); n > maxFlying+2 {
		t.Errorf("%d clients made %d calls of the ledger", clients, n)
	}
}

// stuck is a ledger whose claims from ann's queue hang.
type stuck struct {
	work.Ledger
	hold <-chan struct{}
}

func (l stuck) Claim(ctx context.Context, c work.Claim) ([]work.Item, error) {
	if c.Owner == "ann" {
		<-l.hold
	}
	return l.Ledger.Claim(ctx, c)
}

// TestOneClientLeavesTheLedgerToOthers: it makes at most half of the calls that
// bring items, however many it asks for. The others of its calls wait, and are
// refused in time.
func TestOneClientLeavesTheLedgerToOthers(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	base := mem.NewLedger(nil)
	r, _ := workRig(t, &Options{
		Ledger: stuck{base, hold}, Access: grants{"ann acquire q", "bob acquire q"}, CallTimeout: 200 * time.Millisecond,
	})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(hold)
	claim := func(name string, n int) (int, string) {
		return r.do(as(name, r.request(http.MethodPost, "/v1/work/claim", `{"queues":["q"],`+secret(n)+`}`)))
	}
	for i := range maxLedger / 2 {
		all.Go(func() { claim("ann", i) })
	}
	testenv.Eventually(t, "ann's calls are under way", func() error {
		if n := len(r.srv.ledger.lanes.all); n != maxLedger/2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	status, body := claim("ann", 100)
	refused(t, "one call more", status, body, http.StatusServiceUnavailable, wire.Busy)
	id := added(t, base, "q")
	testenv.Eventually(t, "bob gets the item", func() error {
		if status, body := claim("bob", 101); status != http.StatusOK || !strings.Contains(body, string(id)) {
			return fmt.Errorf("%d %s", status, body) // a busy machine may take longer than a call may
		}
		return nil
	})
}

// TestOneClientLeavesRoomForLongBodiesOfOthers, and for long listings.
func TestOneClientLeavesRoomForLongBodiesOfOthers(t *testing.T) {
	t.Parallel()
	r, _ := workRig(t, &Options{Access: grants{"ann add q", "bob add q"}})
	add := func(name string, size int) (int, string) {
		body := `{"queue":"q","payload":"` + strings.Repeat("AAAA", size/4) + `"}`
		return r.do(as(name, r.request(http.MethodPost, itemPath(work.NewID(), work.Add), body)))
	}
	for what, c := range map[string]struct {
		shares *shares
		call   func(name string) (int, string)
	}{
		"a long body":      {&r.srv.longShares, func(name string) (int, string) { return add(name, shortBody) }},
		"a very long body": {&r.srv.hugeShares, func(name string) (int, string) { return add(name, wire.MaxBody) }},
		"a listing": {&r.srv.listShares, func(name string) (int, string) {
			return r.do(as(name, r.request(http.MethodGet, "/v1/work/items", "")))
		}},
	} {
		give, ok := c.shares.take("ann", c.shares.most)
		if !ok {
			t.Fatalf("%s: ann has no share", what)
		}
		status, body := c.call("ann")
		refused(t, what, status, body, http.StatusServiceUnavailable, wire.Busy)
		if status, body := c.call("bob"); status != http.StatusOK {
			t.Errorf("%s of bob's: %d %.200s", what, status, body)
		}
		give()
		if status, body := c.call("ann"); status != http.StatusOK {
			t.Errorf("%s, later: %d %.200s", what, status, body)
		}
	}
	testenv.Eventually(t, "all slots are free", func() error {
		if n := len(r.srv.long) + len(r.srv.huge) + len(r.srv.lists) + len(r.srv.calls); n != 0 {
			return fmt.Errorf("%d are taken", n)
		}
		return nil
	})
}

// slowGet is a ledger that takes a second to find an item.
type slowGet struct {
	work.Ledger
	asked atomic.Int32
}

func (l *slowGet) Get(ctx context.Context, id work.ID) (work.Item, error) {
	l.asked.Add(1)
	time.Sleep(time.Second)
	return l.Ledger.Get(ctx, id)
}

// TestOneBatchIsNotLookedUpForLong: a batch names many items that the server
// has to look up. It looks as long as a call may take, and remembers what it
// has found for the next batch.
func TestOneBatchIsNotLookedUpForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := mem.NewLedger(nil)
		l := &slowGet{Ledger: base}
		srv := New(mem.New(nil), &Options{Ledger: l, Access: grants{"ann work q"}})
		defer srv.Drain()
		var requests []string
		for range 20 {
			requests = append(requests, `{"verb":"heartbeat","id":"`+string(added(t, base, "q"))+`","token":1,`+secret(1)+`}`)
		}
		for round, want := range []int{14, 8, 2} {
			begun := time.Now()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/work/apply",
				strings.NewReader(`{"requests":[`+strings.Join(requests, ",")+`]}`))
			r.Header.Set("Content-Type", wire.JSON)
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, as("ann", r))
			if n := strings.Count(w.Body.String(), `"code":"busy"`); n != want || time.Since(begun) > 7*time.Second {
				t.Errorf("round %d: %d requests were left out after %s, want %d: %s", round, n, time.Since(begun), want, w.Body)
			}
		}
	})
}

// down is a ledger that does not answer.
type down struct{ work.Ledger }

var errDown = store.Unknown(errors.New("db.internal:5432 does not answer"))

func (down) Apply(_ context.Context, requests []work.Request) []work.Answer {
	return work.FailedAnswers(len(requests), errDown)
}
func (down) Claim(context.Context, work.Claim) ([]work.Item, error) { return nil, errDown }
func (down) Get(context.Context, work.ID) (work.Item, error)        { return work.Item{}, errDown }

// TestALedgerThatDoesNotAnswerIsUnknown, and clients do not learn its address.
func TestALedgerThatDoesNotAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	r, _ := workRig(t, &Options{Ledger: down{mem.NewLedger(nil)}})
	for what, c := range map[string][3]string{
		"adding":   {http.MethodPost, itemPath(work.NewID(), work.Add), `{"queue":"q"}`},
		"claiming": {http.MethodPost, "/v1/work/claim", `{"queues":["q"],` + secret(1) + `,"owner":"ann"}`},
		"reading":  {http.MethodGet, itemPath(work.NewID(), ""), ""},
	} {
		status, body := r.do(r.request(c[0], c[1], c[2]))
		refused(t, what, status, body, http.StatusServiceUnavailable, wire.Unknown)
		if strings.Contains(body, "5432") {
			t.Errorf("%s tells %s", what, body)
		}
	}
}

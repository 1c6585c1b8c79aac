package mcpservecmd

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// TestAnAgentWorksOnAnItem from the claim to the result.
func TestAnAgentWorksOnAnItem(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.add("q", "paint \u202e the fence")
	p.add("other", "not for this agent")
	a := p.agent("ann", usual())
	c := a.call("claim")
	if c["item"] != string(id) || c["payload"] != "paint \u202e the fence" || c["checkpoint"] != "" {
		t.Errorf("the claim is %v", c)
	}
	a.refused("invalid", "claim") // one item at a time
	a.call("report", "item", id, "marker", "one half")
	a.call("checkpoint", "item", id, "state", "plank 7")
	if rows := a.call("list_items", "queue", "q", "state", "running", "limit", 1)["items"].([]any); len(rows) != 1 ||
		rows[0].(map[string]any)["owner"] != "ann" || rows[0].(map[string]any)["progress"] != "one half" {
		t.Errorf("the list is %v", rows)
	}
	if shown := a.call("show_item", "item", id); shown["checkpoint"] != "plank 7" || shown["state"] != "running" {
		t.Errorf("the item is %v", shown)
	}
	if mine := a.call("my_work"); mine["owner"] != "ann" || len(mine["items"].([]any)) != 1 {
		t.Errorf("the agent's work is %v", mine)
	}
	if done := a.call("complete", "item", id, "result", "green"); done["state"] != "done" {
		t.Errorf("the completion is %v", done)
	}
	if it := p.item(id); it.State != work.Done || string(it.Result) != "green" || it.Record.Owner != "ann" {
		t.Errorf("the ledger has %+v", it)
	}
	a.refused("empty", "claim")
	a.refused("not_owned", "complete", "item", id)
	p.add("q", "\x00\xff")
	if c := a.call("claim", "queue", "q"); c["payload"] != nil || c["payload_base64"] != "AP8=" {
		t.Errorf("the claim of bytes that are no text is %v", c)
	} else {
		a.call("fail", "item", c["item"], "error", "no brush", "final", true)
	}
	id = p.add("q", "x")
	a.call("claim")
	a.call("release", "item", id, "delay", 60)
	if it := p.item(id); it.State != work.Waiting || it.Attempts != 0 {
		t.Errorf("a released item is %+v", it)
	}
}

// TestNoArgumentNamesAnOwner: the identity belongs to the process.
func TestNoArgumentNamesAnOwner(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.add("q", "x")
	a := p.agent("ann", usual())
	identity := []string{"owner", "token", "lease", "store", "stamp", "secret", "key_token", "Item", "croft", "actor", "instance"}
	tools := a.ask("tools/list", "{}").Tools
	if len(tools) != 12 {
		t.Errorf("there are %d tools", len(tools))
	}
	for _, tool := range tools {
		if tool.InputSchema.AdditionalProperties == nil || *tool.InputSchema.AdditionalProperties {
			t.Errorf("the schema of %s allows others", tool.Name)
		}
		writes := []string{"report", "checkpoint", "claim", "complete", "fail", "release"}
		if tool.Annotations.ReadOnlyHint == slices.Contains(writes, tool.Name) {
			t.Errorf("%s says readOnlyHint %v", tool.Name, tool.Annotations.ReadOnlyHint)
		}
		for _, name := range identity {
			if tool.InputSchema.Properties[name] != nil {
				t.Errorf("%s takes %s", tool.Name, name)
			}
			a.refused("invalid", tool.Name, name, "bob")
		}
	}
	a.call("claim")
	if it := p.item(id); it.Record.Owner != "ann" {
		t.Errorf("the item belongs to %s", it.Record.Owner)
	}
	for _, bad := range [][]any{
		{"claim", "queue", "other"},
		{"list_keys", "limit", 0},
		{"list_keys", "limit", 501},
		{"list_keys", "limit", "5"},
		{"list_keys", "state", "Held"},
		{"complete"},
		{"complete", "item", "abcd"},
		{"complete", "item", strings.ToUpper(string(id))},
		{"complete", "item", id, "result", strings.Repeat("x", work.MaxPayload+1)},
		{"fail", "item", id, "error", "x", "final", "true"},
		{"fail", "item", id, "error", ""},
		{"who_owns", "key", "../x"},
		{"report", "marker", "x"}, // there is no lease around
	} {
		code := "invalid"
		if len(bad) == 3 && bad[2] == strings.ToUpper(string(id)) {
			code = "not_owned"
		}
		a.refused(code, bad[0].(string), bad[1:]...)
	}
	if it := p.item(id); it.State != work.Running {
		t.Errorf("the item is %s", it.State)
	}
}

// TestAReplacedAgentCompletesNothing: the ledger refuses it, and notes so. An
// id alone gives no right.
func TestAReplacedAgentCompletesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.add("q", "x")
	ann, bob := p.agent("ann", usual()), p.agent("bob", usual())
	ann.call("claim")
	bob.refused("not_owned", "complete", "item", id)
	bob.refused("not_owned", "report", "item", id, "marker", "x")
	p.take(id, "bob")
	if why := ann.refused("stale", "complete", "item", id, "result", "ann's"); why["newest_owner"] != "bob" {
		t.Errorf("the refusal is %v", why)
	}
	if it := p.item(id); it.State != work.Running || len(it.Result) > 0 {
		t.Errorf("the item is %+v", it)
	}
	noted := 0
	for r, err := range p.ledger.Refusals(t.Context(), work.RefusalQuery{}) {
		if err != nil || r.Verb != work.Complete || r.PresentedOwner != "ann" || r.NewestOwner != "bob" {
			t.Errorf("a refusal is %+v, %v", r, err)
		}
		noted++
	}
	if noted != 1 {
		t.Errorf("%d refusals are on record", noted)
	}
}

// TestAnAgentThatLeavesGivesItsItemsBack, and the attempt does not count.
func TestAnAgentThatLeavesGivesItsItemsBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := usual()
	f.most = 2
	ids := []work.ID{p.add("q", "x"), p.add("q", "y")}
	a := p.agent("ann", f)
	a.call("claim")
	a.call("claim")
	a.leave()
	for _, id := range ids {
		if it := p.item(id); it.State != work.Waiting || it.Attempts != 0 {
			t.Errorf("the item is %+v", it)
		}
	}
}

// TestAClaimedItemIsKeptWhileTheAgentWorks: heartbeats move its deadline. They
// end when the agent is silent, and when the item is lost.
func TestAClaimedItemIsKeptWhileTheAgentWorks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.add("q", "x")
	h := p.hands(usual(), p.ledger)
	it, err := h.take(t.Context(), []string{"q"})
	if err != nil {
		t.Fatal(err)
	}
	deadline := func() time.Time { return p.item(it.ID).Record.Deadline }
	before := deadline()
	h.beat(t.Context())
	kept := deadline()
	if !kept.After(before) {
		t.Errorf("a heartbeat moved the deadline from %s to %s", before, kept)
	}
	h.items[0].moved = h.items[0].moved.Add(-h.stallAfter)
	h.beat(t.Context())
	if deadline() != kept {
		t.Error("an item is kept whose agent is silent")
	}
	if _, err := h.find(string(it.ID)); err != nil {
		t.Fatal(err)
	}
	h.beat(t.Context())
	if !deadline().After(kept) {
		t.Error("an item is not kept whose agent works again")
	}
	p.take(it.ID, "bob")
	h.beat(t.Context())
	if lost := h.all()[0].lost; !errors.Is(lost, work.ErrStale) {
		t.Errorf("a heartbeat of a lost item: %v", lost)
	}
	if err := h.room(); err != nil {
		t.Errorf("after a loss: %v", err)
	}
}

// TestAClaimWhoseAnswerIsLostTakesOneItem: it is made again, with the same
// secret, also by the agent's next call.
func TestAClaimWhoseAnswerIsLostTakesOneItem(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.add("q", "x")
	p.add("q", "y")
	d := &deaf{Ledger: p.ledger, claims: 2}
	h := p.hands(usual(), d)
	h.s.Timeout = 20 * time.Millisecond // less than the first two tries take
	for range 100 {
		it, err := h.take(t.Context(), []string{"q"})
		if errors.Is(err, work.ErrUnknown) {
			continue
		}
		if err != nil || it.ID != first {
			t.Errorf("the claim took %s, want %s; %v", it.ID, first, err)
		}
		break
	}
	running := 0
	for range p.ledger.List(t.Context(), work.Query{States: []work.State{work.Running}}) {
		running++
	}
	if running != 1 {
		t.Errorf("%d items were taken", running)
	}
}

// TestAClaimWithoutAnAnswerIsGivenBack: the item that it has taken does not
// stay behind when the server ends.
func TestAClaimWithoutAnAnswerIsGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.add("q", "x")
	d := &deaf{Ledger: p.ledger, claims: math.MaxInt}
	h := p.hands(usual(), d)
	h.s.Timeout = 20 * time.Millisecond
	if _, err := h.take(t.Context(), []string{"q"}); !errors.Is(err, work.ErrUnknown) {
		t.Errorf("the claim was answered: %v", err)
	}
	d.claims, h.s.Timeout = 0, testenv.Patience
	h.giveBack()
	if it := p.item(id); it.State != work.Waiting || it.Attempts != 0 {
		t.Errorf("the item is %+v", it)
	}
}

// TestAnItemThatIsClaimedAgainIsTheNewOne: an agent that was silent for too
// long loses its item, and may claim it once more.
func TestAnItemThatIsClaimedAgainIsTheNewOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := p.add("q", "x")
	f := usual()
	f.most = 2
	a := p.agent("ann", f)
	first := a.call("claim")
	p.release(id, p.take(id, "bob"))
	if again := a.call("claim"); again["item"] != first["item"] {
		t.Fatalf("the agent got %v", again)
	}
	a.call("report", "item", string(id), "marker", "on")
	a.call("complete", "item", string(id))
}

// TestToolsActUnderTheLeaseAround this process, and are refused when it is
// another's.
func TestToolsActUnderTheLeaseAround(t *testing.T) {
	p := newPlace(t)
	st, err := store.Open(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	c := croft.New(st, &croft.Options{Owner: "ann"})
	defer c.Close()
	lease, err := c.Acquire(t.Context(), "tasks/a", &croft.LeaseOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lease")
	if err := os.WriteFile(file, []byte(lease.Deed().Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cli.EnvLease, "@"+file)
	f := usual()
	f.queues = nil
	a := p.agent("bob", f) // the lease counts, not the name
	a.call("report", "marker", "page 1")
	a.call("checkpoint", "state", "p1")
	a.refused("invalid", "checkpoint", "state", lease.Deed().Text())
	a.refused("not_owned", "report", "marker", "x", "item", strings.Repeat("0", 32))
	if rec := a.call("who_owns", "key", "tasks/a"); rec["owner"] != "ann" || rec["progress"] != "page 1" || rec["checkpoint"] != "p1" {
		t.Errorf("the record is %v", rec)
	}
	if mine := a.call("my_work")["lease"].(map[string]any); mine["yours"] != true || mine["key"] != "tasks/a" {
		t.Errorf("the lease is %v", mine)
	}
	if keys := a.call("list_keys", "prefix", "tasks/", "state", "held"); len(keys["keys"].([]any)) != 1 || keys["more"] != false {
		t.Errorf("the keys are %v", keys)
	}
	if _, err := c.Reserve(t.Context(), "tasks/a", "bob", croft.ByHand{Note: "reassigned"}); err != nil && !errors.Is(err, croft.ErrUnfenced) {
		t.Fatal(err)
	}
	if why := a.refused("not_owned", "report", "marker", "page 2"); why["owner"] != "bob" {
		t.Errorf("the refusal is %v", why)
	}
	if mine := a.call("my_work")["lease"].(map[string]any); mine["yours"] != false {
		t.Errorf("the lease is %v", mine)
	}
	if terms := a.call("history", "key", "tasks/a")["terms"].([]any); len(terms) != 2 || terms[1].(map[string]any)["owner"] != "ann" {
		t.Errorf("the history is %v", terms)
	}
	if a.call("who_owns", "key", "nobody")["state"] != "free" {
		t.Error("an unknown key is not free")
	}
}

// TestToolsActOnTheItemAround this process, as under croft work run. It is not
// given back at the end: croft work run does that.
func TestToolsActOnTheItemAround(t *testing.T) {
	p := newPlace(t)
	id := p.add("q", "x")
	h := p.hands(usual(), p.ledger)
	if _, err := h.take(t.Context(), []string{"q"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cli.EnvLease, h.items[0].deed.Text())
	f := usual()
	f.queues = nil
	a := p.agent("ann", f)
	a.call("report", "marker", "half")
	if mine := a.call("my_work"); mine["lease"].(map[string]any)["yours"] != true {
		t.Errorf("the agent's work is %v", mine)
	}
	a.leave()
	if it := p.item(id); it.State != work.Running || it.Record.Progress != "half" {
		t.Errorf("the item is %+v", it)
	}
	a = p.agent("ann", f)
	a.call("complete", "item", id)
	if it := p.item(id); it.State != work.Done {
		t.Errorf("the item is %+v", it)
	}
}

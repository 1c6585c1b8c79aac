package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestNamesOfStrangersHarmNoPage: names as long as the law allows fit into the
// window, and markup in them does nothing.
func TestNamesOfStrangersHarmNoPage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	s := newStage(t)
	const evil = `<img src=x onerror="window.hurt=1">'` + "\u202eabc\u2066"
	long := func(n int) string { return strings.Repeat("W", n) }
	secret := tenure.NewSecret()
	key := "very/" + long(tenure.MaxName)
	s.apply(tenure.Request{
		Verb: tenure.Acquire, Key: key, Owner: long(200), Instance: long(200), TTL: time.Hour, Secret: secret,
		Guards: []string{"s3://" + long(300), evil},
	})
	s.apply(tenure.Request{Verb: tenure.Checkpoint, Key: key, Secret: secret, Checkpoint: long(600)})
	s.apply(tenure.Request{Verb: tenure.Takeover, Key: key, Owner: "opal", Actor: long(200), Note: long(900), TTL: time.Hour})
	s.apply(tenure.Request{
		Verb: tenure.Revoke, Key: "croft.refused/very", Actor: long(200),
		Note: fmt.Sprintf(`{"act":"write","code":"stale","key":%q,"token":7,"target":%q}`, key, long(300)),
	})
	queue := "q/" + long(200)
	it, err := work.Enqueue(t.Context(), s.ledger, queue, []byte(long(3000)+evil), &work.ItemOptions{Unique: long(200)})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.ledger.Claim(t.Context(), work.Claim{Queues: []string{queue}, Limit: 1, Secret: secret, Owner: long(200), TTL: time.Minute})
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	a := s.ledger.Apply(t.Context(), []work.Request{{
		Verb: work.Complete, ID: it.ID, Token: claimed[0].Record.Token, Secret: secret,
		Effects: []work.Emission{{Name: long(128), To: long(100)}},
	}})[0]
	if a.Err != nil {
		t.Fatal(a.Err)
	}

	b.do("sign in", chromedp.Navigate(s.url+"/"), visible("#token"), keys("#token", "opals-token"+kb.Enter), visible(".tiles"))
	b.shows("#link", "live")
	s.apply(tenure.Request{Verb: tenure.Takeover, Key: "evil/" + evil, Owner: evil, Actor: evil, Note: evil, TTL: time.Hour})
	b.shows("#changes", "evil/<img", `\u{202e}`)
	b.shows(".keys", "evil/<img", `\u202e`)
	b.truth("no markup of strangers", `!document.querySelector("main img") && !window.hurt`)
	b.picture("strangers-keys")

	// A hidden page leaves the browser's few connections to others.
	hide := func(hidden bool) {
		b.truth("the page is hidden, or not", fmt.Sprintf(
			`Object.defineProperty(document, "hidden", {configurable: true, get: () => %t}) && document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	streams := func(want int64) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("%d streams are open", want), func() error {
			if n := s.open.Load(); n != want {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	streams(1)
	hide(true)
	streams(0)
	hide(false)
	streams(1)
	b.shows("#changes", "this page was hidden")

	for _, one := range []struct{ name, path, part string }{
		{"key", "key?key=" + key, ".acts"},
		{"work", "work", ".rows"},
		{"items", "items?queue=" + queue, ".rows"},
		{"item", "item?id=" + string(it.ID), ".timeline"},
		{"refused", "refusals", ".feed"},
	} {
		b.do(one.name, chromedp.Navigate(s.url+"/ui/"+one.path), visible(one.part))
		b.picture("strangers-" + one.name)
	}
	for _, wrong := range b.complaints() {
		t.Errorf("the browser says: %s", wrong)
	}
}

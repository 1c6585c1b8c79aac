package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	guardedfile "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// TestALeaseOfASigningServerHasASignedStamp: it stays signed when the lease is
// resumed, and when another process has the deed. Acts by hand are signed, too.
func TestALeaseOfASigningServerHasASignedStamp(t *testing.T) {
	t.Parallel()
	key := signed.NewKey()
	keys := key.Public()
	base := mem.New(nil)
	signing := connect(t, serve(t, base, &server.Options{SignKey: key}).URL, nil)
	plain := connect(t, serve(t, base, nil).URL, nil)
	issued := func(what string, s fence.Stamp) {
		t.Helper()
		if err := keys.CheckNow(s); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	client := croft.New(signing, &croft.Options{Owner: "ann"})
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.Acquire(t.Context(), "jobs/a", &croft.LeaseOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	issued("a lease", lease.Stamp())
	deed, err := tenure.ParseDeed(lease.Deed().Text())
	if err != nil || deed != lease.Deed() || deed.Stamp() != lease.Stamp() {
		t.Errorf("%+v, %v; want the deed with its signature", deed, err)
	}
	for name, through := range map[string]*Store{"the signing server": signing, "a server that does not sign": plain} {
		other := croft.New(through, &croft.Options{Owner: "ann"})
		adopted, err := other.Adopt(t.Context(), deed, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		issued("adopted through "+name, adopted.Stamp())
		_ = other.Close()
	}
	taken, err := client.Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "why"})
	if err != nil {
		t.Fatal(err)
	}
	issued("a takeover", taken.Deed.Stamp())
	revoked, err := client.Revoke(t.Context(), "jobs/a", croft.ByHand{Note: "why"})
	if err != nil {
		t.Fatal(err)
	}
	issued("a revocation", revoked.Deed.Stamp())
}

// TestAWorkerAtASigningServerPassesGuardsWithKeys: its handler raises the fence
// and writes. A worker at the ledger itself is refused.
func TestAWorkerAtASigningServerPassesGuardsWithKeys(t *testing.T) {
	t.Parallel()
	key := signed.NewKey()
	base := mem.NewLedger(nil)
	guarded, err := guardedfile.Open(filepath.Join(t.TempDir(), "out"), &guardedfile.Options{Keys: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guarded.Close() })
	far := ledgerAt(t, serveLedger(t, base, &server.Options{SignKey: key}).URL, nil)
	for _, c := range []struct {
		what string
		l    work.Ledger
		want error
	}{{"a worker at the server", far, nil}, {"a worker at the ledger", base, signed.ErrNotIssued}} {
		add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q"}
		if a := base.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var raised, written error
		if err := work.Run(ctx, c.l, map[string]work.Handler{"q": func(ctx context.Context, j *work.Job) (work.Result, error) {
			defer stop()
			_, raised = guarded.Raise(ctx, j.Stamp())
			_, written = guarded.Write(ctx, j.Stamp(), strings.NewReader("content"))
			return work.Result{}, nil
		}}, nil); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(raised, c.want) || !errors.Is(written, c.want) {
			t.Errorf("%s: raised %v, written %v; want %v", c.what, raised, written, c.want)
		}
	}
}

// TestAnActOnAnItemIsSigned: an operator's act through the server raises the
// fence at a guard with keys. An act at the ledger itself does not, and neither
// does anybody who only reads the item.
func TestAnActOnAnItemIsSigned(t *testing.T) {
	t.Parallel()
	key, folder := signed.NewKey(), t.TempDir()
	base := mem.NewLedger(nil)
	front := serveLedger(t, base, &server.Options{SignKey: key, Files: filesIn(folder)})
	far := ledgerAt(t, front.URL, nil)
	target := front.URL + "/files/out"
	for verb, byHand := range map[work.Verb]work.Request{
		work.Takeover: {TTL: time.Minute}, work.Reassign: {Owner: "bob"}, work.Cancel: {},
	} {
		add := work.Request{Verb: work.Add, ID: work.NewID(), Queue: "q", Guards: []string{target + "-" + string(verb)}}
		if a := base.Apply(t.Context(), []work.Request{add})[0]; a.Err != nil {
			t.Fatal(a.Err)
		}
		claimed, err := far.Claim(t.Context(), work.Claim{Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "ann", TTL: time.Minute})
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		f := openFile(t, connect(t, front.URL, nil), "out-"+string(verb))
		if _, err := f.Write(t.Context(), claimed[0].Stamp(), strings.NewReader("ann's")); err != nil {
			t.Fatal(err)
		}
		byHand.Verb, byHand.ID, byHand.Secret, byHand.Actor, byHand.Note = verb, add.ID, tenure.NewSecret(), "opal", "why"
		done := work.Act(t.Context(), far, []work.Request{byHand}, nil)[0]
		mark, err := f.Mark(t.Context())
		if done.Err != nil || err != nil || mark != done.Item.Mark() {
			t.Errorf("%s: %v; the mark is %+v, %v, want that of %+v", verb, done.Err, mark, err, done.Item.Mark())
		}
		if err := key.Public().CheckNow(done.Item.Stamp()); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		if _, err := f.Write(t.Context(), claimed[0].Stamp(), strings.NewReader("late")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: the old owner: %v", verb, err)
		}
		if again := far.Apply(t.Context(), []work.Request{byHand})[0]; again.Err != nil || again.Item.Signature != done.Item.Signature {
			t.Errorf("%s again: %v, %q", verb, again.Err, again.Item.Signature)
		}
		if it, err := far.Get(t.Context(), add.ID); err != nil || it.Signature != "" {
			t.Errorf("a reader gets %q, %v", it.Signature, err)
		}
		beat := work.Request{Verb: work.Cancel, ID: add.ID, Secret: tenure.NewSecret(), Actor: "eve", Note: "why"}
		if a := base.Apply(t.Context(), []work.Request{beat})[0]; a.Item.Signature != "" {
			t.Errorf("the ledger itself signs: %q", a.Item.Signature)
		}
	}
}

// TestOnlyTheHolderGetsASignature: not the client that asks in vain, and not
// the client that reads.
func TestOnlyTheHolderGetsASignature(t *testing.T) {
	t.Parallel()
	front := serve(t, mem.New(nil), &server.Options{SignKey: signed.NewKey()})
	st := connect(t, front.URL, nil)
	mine := claim("jobs/a", "ann")
	if a := one(t.Context(), st, mine); a.Err != nil || a.Signature == "" {
		t.Fatalf("%+v", a)
	}
	if again := one(t.Context(), st, mine); again.Err != nil || again.Signature == "" {
		t.Errorf("the same request again: %+v", again)
	}
	for name, q := range map[string]tenure.Request{
		"another's acquire":    claim("jobs/a", "bob"),
		"another's release":    {Verb: tenure.Release, Key: "jobs/a", Secret: tenure.NewSecret()},
		"a renewal":            then(tenure.Renew, mine),
		"a report":             {Verb: tenure.Report, Key: mine.Key, Secret: mine.Secret, Progress: "half"},
		"another's resumption": {Verb: tenure.Renew, Key: "jobs/a", Secret: tenure.NewSecret(), Resume: true},
	} {
		if a := one(t.Context(), st, q); a.Signature != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	resp, err := http.Get(front.URL + "/v1/leases/jobs%2Fa")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"state":"held"`) || strings.Contains(string(text), "signature") {
		t.Errorf("a reader gets %s, %v", text, err)
	}
}

// TestAClientWithAKeySignsItself, on a store that does not.
func TestAClientWithAKeySignsItself(t *testing.T) {
	t.Parallel()
	key := signed.NewKey()
	client := croft.New(mem.New(nil), &croft.Options{Owner: "ann", SignKey: key})
	t.Cleanup(func() { _ = client.Close() })
	lease, err := client.Acquire(t.Context(), "jobs/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := key.Public().CheckNow(lease.Stamp()); err != nil {
		t.Error(err)
	}
}

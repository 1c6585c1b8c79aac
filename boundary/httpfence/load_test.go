package httpfence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/file" // marks in files
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/internal/test/testenv"
)

// trial is a service behind two proxies while its resources change owners. Each
// owner writes and is replaced. Replaced owners go on writing.
type trial struct {
	resources, terms int
	flaw             func(*Proxy)

	t       *testing.T
	store   *mem.Store
	service *service
	fronts  []string
	web     *http.Client
	ids     atomic.Int64
	lost    atomic.Bool // a write of the present owner was refused

	mu           sync.Mutex
	acknowledged map[string][]effect
	outcomes     map[string]int
	stale        map[string][]fence.Stamp // by resource: the stamps of its past owners
	at           map[string]int           // by resource: the proxy that served it last
}

// run runs the trial and returns the violations.
func (tr *trial) run(t *testing.T) []string {
	tr.t, tr.store = t, mem.New(nil)
	tr.service = newService(500 * time.Millisecond)
	tr.service.harsh = tr.flaw != nil // so that the flaw shows sooner
	tr.acknowledged, tr.outcomes, tr.stale, tr.at = map[string][]effect{}, map[string]int{}, map[string][]fence.Stamp{}, map[string]int{}
	upstream := tr.service.serve(t)
	marks, err := MarksAt(filepath.Join(t.TempDir(), "{resource}"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{store: tr.store}
	for _, owner := range []string{"one", "two"} {
		p, front := w.proxyTo(t, owner, upstream, func(o *ProxyOptions) {
			o.Marks, o.AnswerWithin = marks, tr.service.answerWithin
			o.TTL, o.Settle, o.Wait = time.Second, tr.service.answerWithin, 20*time.Second
			o.Observe = func(e gate.Event) { tr.tally(string(e.Kind) + "/" + e.Code) }
		})
		p.gate.core.Settled, p.gate.core.Options.Settle = tr.service.settled, 20*time.Millisecond
		tr.service.behind(p)
		if tr.flaw != nil {
			tr.flaw(p)
		}
		tr.fronts = append(tr.fronts, front.URL)
	}
	tr.web = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer tr.web.CloseIdleConnections()
	var owners, zombies sync.WaitGroup
	over := make(chan struct{})
	for i := range tr.resources {
		resource := fmt.Sprintf("r/%d", i)
		owners.Go(func() { tr.own(resource) })
		zombies.Go(func() { tr.haunt(resource, over) })
	}
	owners.Wait()
	close(over)
	zombies.Wait()
	for i := range tr.resources {
		for resource := fmt.Sprintf("r/%d", i); !tr.service.settled(resource); {
			time.Sleep(time.Millisecond)
		}
	}
	wrong := judge(tr.service, tr.acknowledged)
	if tr.lost.Load() {
		wrong = append(wrong, "a write of the present owner was refused")
	}
	return wrong
}

func (tr *trial) tally(what string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.outcomes[what]++
}

// own lets one owner after another write to a resource.
func (tr *trial) own(resource string) {
	client := croft.New(tr.store.Open(nil), &croft.Options{Owner: "owner", CallTimeout: testenv.Patience})
	defer client.Close()
	for term := range tr.terms {
		lease, err := client.Acquire(tr.t.Context(), "jobs/"+resource, &croft.LeaseOptions{TTL: time.Minute})
		if err != nil {
			tr.t.Error(err)
			return
		}
		tr.mu.Lock()
		tr.stale[resource] = append(tr.stale[resource], lease.Stamp())
		tr.mu.Unlock()
		var seq uint64
		for range 2 {
			e := effect{id: fmt.Sprint(tr.ids.Add(1))}
			for again := true; again; {
				seq++
				e.stamp = numbered(lease.Stamp(), seq)
				code, tries := tr.write(resource, e)
				// An earlier try has used the number up, although nothing was
				// sent. Go on under the next number.
				again = code == "repeated" && tries > 1
				if code == "stale" || code == "repeated" && !again {
					tr.lost.Store(true)
				}
			}
		}
		if term == tr.terms/2 && tr.flaw == nil { // a proxy loses its lease and does not know
			op := croft.ByHand{Actor: "op", Note: "trial"}
			if _, err := client.Revoke(tr.t.Context(), DefaultLeasePrefix+resource, op); err != nil {
				tr.t.Error(err)
			}
		}
		if err := lease.Release(tr.t.Context()); err != nil {
			tr.t.Error(err)
		}
	}
}

// haunt writes under stamps of owners that have been replaced, or are about to
// be.
func (tr *trial) haunt(resource string, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
		}
		tr.mu.Lock()
		stamps := tr.stale[resource]
		tr.mu.Unlock()
		if n := len(stamps); n > 0 {
			tr.write(resource, effect{fmt.Sprint(tr.ids.Add(1)), stamps[max(0, n-1-rand.IntN(4))]})
		}
	}
}

// write sends one write, and again while it is certain that nothing was sent.
// It returns the code of the refusal.
func (tr *trial) write(resource string, e effect) (code string, tries int) {
	for retry := true; retry; tries++ {
		tr.mu.Lock()
		front := tr.at[resource]
		tr.mu.Unlock()
		if rand.IntN(10) == 0 { // a balancer may choose the other proxy
			front = 1 - front
		}
		code, retry = tr.try(tr.fronts[front]+"/"+resource, resource, e)
		tr.tally("client/" + code)
		if code == "held" {
			tr.mu.Lock()
			tr.at[resource] = 1 - front
			tr.mu.Unlock()
		}
	}
	return code, tries
}

func (tr *trial) try(target, resource string, e effect) (code string, retry bool) {
	ctx := tr.t.Context()
	if rand.IntN(100) < 15 { // the client leaves
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, time.Duration(1+rand.IntN(8))*time.Millisecond)
		defer leave()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, strings.NewReader(e.id))
	if err != nil {
		tr.t.Error(err)
		return "error", false
	}
	SetStamp(req.Header, e.stamp)
	resp, err := tr.web.Do(req)
	if err != nil {
		return "gone", false
	}
	defer resp.Body.Close()
	var p *ProblemError
	if errors.As(RefusalIn(resp), &p) {
		if p.Code == "held" || p.Code == "unknown" {
			return p.Code, !p.Sent
		}
		return p.Code, false
	}
	if resp.StatusCode != http.StatusOK {
		tr.t.Errorf("%s: %s", target, resp.Status)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.acknowledged[resource] = append(tr.acknowledged[resource], e)
	return "ok", false
}

// TestNoStaleWriteReachesTheServiceAfterANewerOne: ownership moves 300 times
// while the service stalls, connections are cut and clients leave. No newer
// write is lost.
func TestNoStaleWriteReachesTheServiceAfterANewerOne(t *testing.T) {
	t.Parallel()
	tr := &trial{resources: 15, terms: 20}
	start := time.Now()
	for _, wrong := range tr.run(t) {
		t.Error(wrong)
	}
	// The proxy may still be busy with the last answers when all owners are
	// done.
	tr.mu.Lock()
	defer tr.mu.Unlock()
	t.Logf("%d owners in %s; %d stalls, %d cuts; %v", tr.resources*tr.terms, time.Since(start).Round(time.Millisecond), tr.service.stalls, tr.service.cuts, tr.outcomes)
	for _, what := range []string{"client/ok", "client/stale", "client/gone", "client/unknown", "client/held", "write_in_doubt/", "resource_closed/", "resource_opened/"} {
		if tr.outcomes[what] == 0 {
			t.Errorf("nothing of this kind happened: %s; the trial shows less than it should", what)
		}
	}
	if tr.service.stalls == 0 || tr.service.cuts == 0 {
		t.Error("the service behaved too well")
	}
}

// TestTheTrialCatchesBrokenProxies tries four flaws:
//
//   - The proxy checks in turn, but writes at will.
//   - The proxy ends a write's turn when its client leaves.
//   - The proxy goes on at once after a write without an answer.
//   - Two proxies have no lease.
func TestTheTrialCatchesBrokenProxies(t *testing.T) {
	t.Parallel()
	for name, flaw := range map[string]func(*Proxy){
		"no serialisation":                     func(p *Proxy) { p.gate.core.Flaw.Unserialised = true },
		"the turn is freed when clients leave": func(p *Proxy) { p.freeOnLeave = true },
		"nothing settles":                      func(p *Proxy) { p.gate.core.Settled, p.gate.core.Options.Settle = nil, 1 },
		"two at once":                          func(p *Proxy) { p.gate.core.Options.Client = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				tr := &trial{resources: 4, terms: 15, flaw: flaw}
				if wrong := tr.run(t); len(wrong) > 0 {
					t.Logf("caught by %q: %s, and %d more", "the trial", wrong[0], len(wrong)-1)
					return
				}
			}
			t.Error("not caught")
		})
	}
}

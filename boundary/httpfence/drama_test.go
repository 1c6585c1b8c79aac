package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/admission/overhttp"
	"github.com/croft-dev/croft/internal/clock"
	"github.com/croft-dev/croft/internal/inject"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// drama plays a story.
type drama struct {
	t       *testing.T
	admit   bool // --when-unsure admit
	leases  *mem.Store
	own     *mem.Store // the store of the proxy's own leases
	service *http.Server
	network *pipes
	marks   memoryMarks
	flaw    flaw

	proxy    *Proxy
	follower inject.Follower
	client   *croft.Client
	senders  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	owners    []fence.Stamp
	takeovers []*takeover
	admitted  []admittedWrite
	arrived   []fence.Token // at the service, in order
	unsure    fence.Token   // the last event was about this token
	away      bool
	hanging   chan struct{} // closed when the store answers again; nil: it answers
	slow      time.Duration
	busy      time.Duration
	breaking  bool
	broken    bool // the channel cannot be had
	lost      bool
	until     time.Time            // announcements are held back until then
	channels  []context.CancelFunc // of the live subscriptions
}

// flaw breaks the proxy on purpose.
type flaw string

const (
	none      flaw = ""
	unchecked flaw = "the current check is left out"
	forgetful flaw = "the mark is not kept"
	trusting  flaw = "answers are believed for too long"
)

// forgets is a guard that admits everybody.
type forgets struct{ guard.Guard }

func (forgets) Mark(context.Context) (fence.Mark, error) { return fence.Mark{}, nil }

func (forgets) Raise(_ context.Context, s fence.Stamp) (fence.Mark, error) { return s.Mark(), nil }

// play plays a story in virtual time and returns the first broken promise.
func play(t *testing.T, admit bool, broken flaw, story []move) (found error) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		d := &drama{
			t: t, admit: admit, flaw: broken, leases: mem.New(nil), network: newPipes(),
			// The proxy's own client counts real time, which stands still here.
			own: mem.New(&mem.Options{Now: func() time.Time { return start }}),
		}
		d.service = &http.Server{Handler: http.HandlerFunc(d.serve)}
		go func() { _ = d.service.Serve(d.network) }()
		d.begin()
		d.apply(tenure.Acquire, "ann")
		synctest.Wait() // the follower listens now
		for _, m := range story {
			d.make(m)
			synctest.Wait()
		}
		found = d.end()
	})
	return found
}

// begin starts a proxy.
func (d *drama) begin() {
	believed := maxAge
	if d.flaw == trusting {
		believed *= 2
	}
	d.follower = inject.Follow(&followed{d.leases, d}, believed, maxSilentAge, askTimeout, clock.NewProcess())
	d.client = croft.New(d.own.Open(nil), &croft.Options{Owner: "proxy"})
	o := ProxyOptions{Options: Options{
		Rules: []Rule{rule(d.t, "/r/{id}")}, Client: d.client, Current: d.follower, AdmitUnsure: d.admit,
		Marks: d.marks.open, Settle: 5 * time.Second, Observe: d.observe,
	}, AnswerWithin: 5 * time.Second}
	switch d.flaw {
	case unchecked:
		o.Current = nil
	case forgetful:
		o.Marks = func(context.Context, string) (guard.Guard, error) { return forgets{&guardtest.Memory{}}, nil }
	}
	p, err := NewProxy(&url.URL{Scheme: "http", Host: "service"}, o)
	if err != nil {
		d.t.Fatal(err)
	}
	p.gate.core.Clock = clock.NewProcess()
	p.writes.Transport.(*forwarder).base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := d.network.dial(ctx)
		x, _ := overhttp.ExchangeIn(ctx)
		return &overhttp.Conn{Conn: conn, Exchange: x}, err
	}
	d.proxy = p
}

// finish ends the proxy in order.
func (d *drama) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = d.proxy.Close(ctx)
	d.follower.Close()
	_ = d.client.Close()
}

// make makes a move.
func (d *drama) make(m move) {
	switch m.what {
	case writes:
		d.send(m.owner)
		return
	case takesOver:
		d.apply(tenure.Takeover, "op")
		return
	case waits:
		time.Sleep(m.d)
		return
	case restarts:
		d.finish()
		d.begin()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m.what {
	case pauses:
		d.until = time.Now().Add(m.d)
	case cuts:
		d.broken = true
		d.cut()
	case mends:
		d.broken = false
	case loses, finds:
		d.lost = m.what == loses
	case leaves:
		d.away = true
	case hangs:
		if d.hanging == nil {
			d.hanging = make(chan struct{})
		}
	case returns:
		d.back()
	case slows:
		d.slow = min(m.d, askTimeout-time.Millisecond)
	case works:
		d.busy = min(m.d, 4*time.Second)
	case breaks:
		d.breaking = true
	}
}

// cut ends the subscriptions. The follower notices at once, and answers then
// age faster. The caller holds the mutex.
func (d *drama) cut() {
	for _, end := range d.channels {
		end()
	}
	d.channels = nil
	now := time.Now()
	for _, k := range d.takeovers {
		if aged := later(now.Add(maxSilentAge), k.at.Add(askTimeout)); k.heard && !k.told && aged.Before(k.bound) {
			k.bound = aged
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// back lets the store answer again. The caller holds the mutex.
func (d *drama) back() {
	d.away = false
	if d.hanging != nil {
		close(d.hanging)
		d.hanging = nil
	}
}

// apply gives the key to a new owner, who writes from now on.
func (d *drama) apply(verb tenure.Verb, owner string) {
	q := tenure.Request{Verb: verb, Key: "jobs/a", Secret: tenure.NewSecret(), Owner: owner, TTL: 24 * time.Hour}
	if verb == tenure.Takeover {
		q.Actor, q.Note = "op", "stuck"
	}
	d.mu.Lock() // nobody subscribes, or is told, meanwhile
	defer d.mu.Unlock()
	a := d.leases.Apply(context.Background(), []tenure.Request{q})[0]
	if a.Err != nil {
		d.t.Fatal(a.Err)
	}
	k := &takeover{token: a.Record.Token, at: time.Now(), heard: len(d.channels) > 0}
	k.bound = k.at.Add(askTimeout)
	if k.heard {
		k.bound = k.at.Add(maxAge)
	}
	d.takeovers = append(d.takeovers, k)
	d.owners = append(d.owners, a.Record.Stamp())
}

// send sends a write in the background.
func (d *drama) send(back int) {
	d.mu.Lock()
	stamp := d.owners[max(0, len(d.owners)-1-back)]
	proxy := d.proxy
	d.mu.Unlock()
	d.senders.Go(func() { d.put(proxy, stamp) })
}

// put sends a write and returns the status of its answer.
func (d *drama) put(proxy *Proxy, stamp fence.Stamp) int {
	r := httptest.NewRequest(http.MethodPut, "/r/1", strings.NewReader("x"))
	SetStamp(r.Header, stamp)
	answer := httptest.NewRecorder()
	proxy.ServeHTTP(answer, r)
	return answer.Code
}

// observe notes which writes the proxy lets in.
func (d *drama) observe(e gate.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Kind {
	case gate.Unsure:
		if e.Status == 0 { // it was not refused for that
			d.unsure = e.Token
		}
	case gate.Admitted:
		d.admitted = append(d.admitted, admittedWrite{e.Token, time.Now(), d.unsure == e.Token})
		d.unsure = 0
	}
}

// serve is the service.
func (d *drama) serve(_ http.ResponseWriter, r *http.Request) {
	stamp, err := StampOf(r.Header)
	if err != nil {
		d.t.Error(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	d.mu.Lock()
	d.arrived = append(d.arrived, stamp.Token)
	busy, breaking := d.busy, d.breaking
	d.breaking = false
	d.mu.Unlock()
	time.Sleep(busy)
	if breaking {
		panic(http.ErrAbortHandler)
	}
}

// end ends all faults and checks the promises.
func (d *drama) end() error {
	d.mu.Lock()
	d.back()
	d.broken, d.lost, d.slow, d.busy, d.breaking = false, false, 0, 0, false
	newest := d.owners[len(d.owners)-1]
	d.mu.Unlock()
	d.senders.Wait()
	time.Sleep(maxAge + time.Nanosecond)
	status := d.put(d.proxy, newest)
	d.finish()
	_ = d.service.Close()
	_ = d.leases.Close()
	_ = d.own.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if status != http.StatusOK {
		return fmt.Errorf("the newest owner was answered %d when all was well again", status)
	}
	return d.verdict()
}

// verdict returns the first broken promise.
func (d *drama) verdict() error {
	var newest fence.Token
	for _, token := range d.arrived {
		if token < newest {
			return fmt.Errorf("the service saw a write of token %d after one of token %d", token, newest)
		}
		newest = token
	}
	for _, w := range d.admitted {
		for _, k := range d.takeovers {
			if w.token < k.token && w.at.After(k.bound) && !w.unsure {
				return fmt.Errorf("token %d was let in %s after it was replaced, and %s after the proxy had to know",
					w.token, w.at.Sub(k.at), w.at.Sub(k.bound))
			}
		}
		if w.unsure && !d.admit {
			return errors.New("a write was let in although the store did not say whose it is")
		}
	}
	return nil
}

// followed is the store of the writers' leases as the proxy sees it.
type followed struct {
	*mem.Store
	d *drama
}

// Get reads a record. Its answer may come late.
func (f *followed) Get(ctx context.Context, key string) (tenure.Record, error) {
	f.d.mu.Lock()
	away, hanging, slow := f.d.away, f.d.hanging, f.d.slow
	f.d.mu.Unlock()
	if away {
		return tenure.Record{}, errors.New("the store is away")
	}
	if hanging != nil {
		select {
		case <-hanging:
		case <-ctx.Done():
			return tenure.Record{}, ctx.Err()
		}
	}
	rec, err := f.Store.Get(ctx, key)
	time.Sleep(slow)
	return rec, err
}

var _ store.Announcer = (*followed)(nil)

// Acts announces takeovers, unless the story says otherwise.
func (f *followed) Acts(ctx context.Context) (<-chan string, error) {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return nil, errors.New("the channel is broken")
	}
	ctx, end := context.WithCancel(ctx)
	acts, err := f.Store.Acts(ctx)
	if err != nil {
		end()
		return nil, err
	}
	d.channels = append(d.channels, end)
	told := make(chan string)
	go func() {
		defer close(told)
		for key := range acts {
			d.mu.Lock()
			lost, pause := d.lost, time.Until(d.until)
			d.mu.Unlock()
			if lost {
				continue
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			before := d.happened()
			select {
			case told <- key:
				d.told(before)
			case <-ctx.Done():
				return
			}
		}
	}()
	return told, nil
}

// happened returns the takeovers until now.
func (d *drama) happened() []*takeover {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.takeovers)
}

// told notes that the follower was told of takeovers.
func (d *drama) told(of []*takeover) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, k := range of {
		if k.heard && !k.told && now.Before(k.bound) {
			k.bound, k.told = now, true
		}
	}
}

// pipes is a network in memory.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// Options shape a [Server]. A nil *Options and the zero Options mean the
// defaults.
type Options struct {
	// Access decides who may what. If it is nil, everybody may do everything.
	Access Access
	// Ledger keeps the work items that the server offers besides leases. If it
	// is nil, the server offers none. The server does not close it.
	Ledger work.Ledger
	// SignKey signs the stamps of the leases that the server grants, and of the
	// items that are claimed. Default: they are not signed.
	SignKey *signed.Key
	// Keys are the public keys at /v1/keys, and those that must have signed the
	// stamps of writes to Files. While keys are changed, they are more than
	// that of SignKey. Default: that of SignKey.
	Keys *signed.Keys
	// Files opens the guarded files that the server offers. Default: it offers
	// none.
	Files Files
	// Current tells whether the owner of a write to a file is the current one.
	// Default: the server asks its store, and its ledger about items.
	Current guard.Current
	// MaxFile bounds the content of a file, in bytes. Default: 1 GiB.
	MaxFile int64
	// Uploads is a folder that belongs to the server alone, on a disk with room
	// for files. Content of more than 1 MiB stays there until all parts have
	// arrived, so that a client whose connection breaks goes on where it was.
	// The server does not close it. Default: such content comes in one piece,
	// and begins anew.
	Uploads *os.Root
	// Hosts lists the names by which clients call the server, without ports. A
	// server on a loopback address refuses all names but these and localhost,
	// so that no web page reaches it through a name of its own. "*" allows all
	// names. Elsewhere a server without Hosts goes by any name.
	Hosts []string
	// CallTimeout bounds one call of the store. Default: 5 seconds.
	CallTimeout time.Duration
	// MaxCalls is how many calls the server works on at a time, and
	// MaxStreams how many streams are open and acquires wait. Further ones are
	// refused with 503. Defaults: 1024 and 8192.
	MaxCalls, MaxStreams int
	// Heartbeat is how often a quiet stream says that it lives. Default: 15
	// seconds.
	Heartbeat time.Duration
	// Observe is told what happens. It is called at the same time from several
	// goroutines, and must return soon.
	Observe func(Event)
}

const (
	// maxLists is how many listings run at a time, and streams that resume. A
	// listing can be long.
	maxLists = 16
	// receiveWithin bounds the time for a body, sendWithin for each part of an
	// answer.
	receiveWithin = 10 * time.Second
	sendWithin    = 10 * time.Second
	// maxParts is how many times as long the client of a long answer has.
	maxParts = 6
	// maxLong is how many long bodies are in memory at a time. Longer than
	// shortBody is long.
	maxLong   = 64
	shortBody = 32 << 10
	// maxHuge is how many bodies above [wire.MaxBody] are in memory at a time.
	maxHuge = 4
	// examineWithin bounds an examination of the store.
	examineWithin = 25 * time.Second
)

// Server serves one store. It is an [http.Handler]. The zero Server is not
// ready: see [New].
type Server struct {
	st      store.Store
	o       Options
	batcher *batcher[tenure.Request, store.Answer]
	ledger  *ledger // nil if there is none
	mux     http.Handler
	ready   readiness
	waiters waiters
	feed    *feed

	calls, streams, lists, sweeps, long, huge                                 slots
	callShares, streamShares, batchShares, listShares, longShares, hugeShares shares
	transfers                                                                 slots // of files
	transferShares                                                            shares
	uploads                                                                   uploads

	life  context.Context // ends when the server drains
	drain context.CancelFunc
}

// New makes a server of a store. It does not close the store. o may be nil.
func New(st store.Store, o *Options) *Server {
	s := &Server{st: st}
	if o != nil {
		s.o = *o
	}
	if s.o.CallTimeout <= 0 {
		s.o.CallTimeout = 5 * time.Second
	}
	if s.o.MaxCalls <= 0 {
		s.o.MaxCalls = 1024
	}
	if s.o.MaxStreams <= 0 {
		s.o.MaxStreams = 8192
	}
	if s.o.MaxFile <= 0 {
		s.o.MaxFile = 1 << 30
	}
	if s.o.Heartbeat <= 0 {
		s.o.Heartbeat = 15 * time.Second
	}
	if s.o.Observe == nil {
		s.o.Observe = func(Event) {}
	}
	if s.o.Keys == nil && s.o.SignKey != nil {
		s.o.Keys = s.o.SignKey.Public()
	}
	s.o.Hosts = slices.Clone(s.o.Hosts)
	for i, name := range s.o.Hosts {
		s.o.Hosts[i] = hostName(name)
	}
	s.calls, s.streams, s.lists = newSlots(s.o.MaxCalls), newSlots(s.o.MaxStreams), newSlots(maxLists)
	s.sweeps, s.long, s.huge = newSlots(1), newSlots(maxLong), newSlots(maxHuge)
	s.transfers = newSlots(maxTransfers)
	s.uploads = uploads{root: s.o.Uploads, most: maxUploads, writes: map[string]*write{}}
	if s.o.Uploads != nil {
		s.uploads.removeOld()
	}
	s.share()
	s.life, s.drain = context.WithCancel(context.Background())
	s.batcher = &batcher[tenure.Request, store.Answer]{
		send: st.Apply, weigh: func(requests []tenure.Request) int { return len(requests) },
		err: func(a *store.Answer) *error { return &a.Err }, timeout: s.o.CallTimeout, called: s.called,
	}
	if s.o.Ledger != nil {
		s.ledger = newLedger(s)
	}
	s.feed = &feed{
		st: st, every: lookEvery, told: func(err error) { s.o.Observe(Event{Kind: Failed, Err: err}) },
		joining: newSlots(1),
	}
	s.mux = s.routes()
	return s
}

// Drain ends all streams, and answers acquires that wait: their clients ask
// another server with the same secret. From now on the server is not ready. It
// still answers calls; shut the http.Server down next, which waits for them.
func (s *Server) Drain() { s.drain() }

// route is a call of the API: method and path, and the function that answers.
type route struct {
	pattern string
	do      func(*call) error
}

// api lists the calls of the API. openapi.json describes them.
func (s *Server) api() []route {
	all := []route{
		{"POST /v1/apply", s.apply},
		{"GET /v1/leases", s.list},
		{"GET /v1/leases/{key}", s.get},
		{"GET /v1/leases/{key}/history", s.history},
		{"GET /v1/now", s.now},
		{"POST /v1/verify", s.verify},
		{"GET /v1/keys", s.keys},
		{"GET /files/{path...}", s.getFile},
		{"PUT /files/{path...}", s.putFile},
		{"GET /v1/files/{path...}", s.readFileMark},
		{"POST /v1/files/{path...}", s.actOnFile},
		{"POST /v1/sweep", s.sweep},
		{"GET /v1/examine", s.examine},
		{"GET /v1/watch", s.watch},
		{"GET /v1/acts", s.acts},
		{"GET /v1/events", s.events},
	}
	for verb := range verbs {
		all = append(all, route{
			"POST /v1/leases/{key}/" + string(verb), func(c *call) error { return s.lease(c, verb) },
		})
	}
	return append(all, s.workAPI()...)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, "ok") })
	mux.HandleFunc("GET /readyz", s.answerReady)
	mux.HandleFunc("GET /v1/openapi.json", describe)
	for _, r := range s.api() {
		mux.Handle(r.pattern, s.handler(r.do))
	}
	mux.Handle("/", s.handler(func(*call) error {
		p := wire.NewProblem(wire.Invalid, "the API has no such method and path; see docs/server.md; "+
			"write the slashes of a key as %%2F")
		p.Status = http.StatusNotFound // the code tells it from a key that is not there
		return refuse(p)
	}))
	return mux
}

// call is one HTTP request that is being answered.
type call struct {
	*http.Request
	w   *tracker
	id  Identity
	out *http.ResponseController
	// told is what the event of this call says.
	told Event
	slot func() // gives back the slot of this call; calling it again does nothing
}

// refusal is a refusal on its way to the client.
type refusal struct{ wire.Problem }

func (r refusal) Error() string { return r.Detail }

func refuse(p wire.Problem) error { return refusal{p} }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.ContentLength != 0 {
		// A body that is not read must arrive in time, too: net/http reads its
		// rest after the answer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(receiveWithin))
	}
	s.mux.ServeHTTP(w, r)
}

// handler makes an http.Handler of a function that answers, or returns an
// error.
func (s *Server) handler(do func(*call) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, w: &tracker{ResponseWriter: w}}
		c.out = http.NewResponseController(c.w)
		begun := time.Now()
		defer func() {
			p := recover()
			if p == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				panic(p)
			}
			c.told.Kind, c.told.Route, c.told.Remote = Answered, r.Pattern, r.RemoteAddr
			c.told.Identity, c.told.Took = c.id.Name, time.Since(begun)
			if p != nil {
				c.told.Err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				c.told.Code = string(wire.Unknown)
				if c.w.status != 0 {
					defer panic(http.ErrAbortHandler) // the client must not take this for a whole answer
				} else {
					problem := wire.NewProblem(wire.Unknown, "the server failed; ask again with the same secret")
					problem.Status = http.StatusInternalServerError
					c.problem(problem)
				}
			}
			c.told.Status = c.w.status
			s.o.Observe(c.told)
		}()
		if err := s.answer(c, do); err != nil {
			c.fail(err)
		}
	})
}

// answer checks who asks and how, and lets do answer.
func (s *Server) answer(c *call, do func(*call) error) error {
	if err := s.CheckOrigin(c.Request); err != nil {
		return err
	}
	if !s.calls.enter() {
		return busy("calls")
	}
	leave := sync.OnceFunc(s.calls.leave)
	defer leave()
	if err := c.checkBody(); err != nil {
		return err
	}
	if s.o.Access != nil {
		id, err := s.o.Access.Identify(c.Request)
		if errors.Is(err, store.ErrUnknown) {
			return refuse(wire.NewProblem(wire.Unknown, "%s", err.Error()))
		}
		if err != nil {
			c.w.Header().Set("WWW-Authenticate", "Bearer")
			return refuse(wire.NewProblem(wire.Unauthenticated, "%s", err.Error()))
		}
		c.id = id
	}
	give, ok := s.callShares.take(c.id.Name, 1)
	if !ok {
		return busy("calls of one client")
	}
	c.slot = sync.OnceFunc(func() { give(); leave() })
	defer func() { c.slot() }()
	if c.Method == http.MethodPost && (c.ContentLength < 0 || c.ContentLength > shortBody) {
		give, ok := s.longShares.take(c.id.Name, 1)
		if !ok {
			return busy("long bodies of one client")
		}
		if !s.long.enter() {
			give()
			return busy("long bodies")
		}
		before := c.slot
		c.slot = sync.OnceFunc(func() { s.long.leave(); give(); before() })
	}
	return do(c)
}

// crossOrigin refuses changes that a page of another site asks for.
var crossOrigin = http.NewCrossOriginProtection()

// CheckOrigin refuses requests that a web page of others has made up: for a
// name that is not the server's, or from another origin. The server calls it
// for every call; a page beside it, such as server/page, calls it for its own.
func (s *Server) CheckOrigin(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return refuse(wire.NewProblem(wire.NotAllowed, "this request comes from a web page of another origin"))
	}
	if len(s.o.Hosts) == 0 && !atLoopback(r) {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = hostName(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" || host == "localhost" ||
		slices.Contains(s.o.Hosts, host) || slices.Contains(s.o.Hosts, "*") {
		return nil
	}
	return refuse(wire.NewProblem(wire.Invalid, "the server is not called %.80q; use its address, "+
		"or have its operator allow the name (croft serve --host)", host))
}

// hostName returns the form of a host's name in which names are compared.
func hostName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// atLoopback reports whether a request came to an address that only this
// machine can reach.
func atLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

func busy(what string) error {
	return refuse(wire.NewProblem(wire.Busy, "too many %s at once; nothing was changed; ask again in a moment", what))
}

// key returns the key in the path.
func (c *call) key() (string, error) {
	key := c.PathValue("key")
	return key, fence.CheckKey(key)
}

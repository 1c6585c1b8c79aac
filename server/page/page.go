package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
)

// Options shape a [Page]. A nil *Options and the zero Options mean the
// defaults.
type Options struct {
	// Access is that of the server. If it is nil, everybody may do everything.
	Access server.Access
	// Ledger keeps the work items to show. If it is nil, the page shows none.
	// The page does not close it.
	Ledger work.Ledger
	// Store is the name of the store, without secrets. The page shows it to
	// operators of all keys.
	Store string
	// Guards are places whose guards the page may open, to show their marks.
	// Holders choose the targets, and they are opened with the credentials of
	// this process. The files of the server and the store's own place need not
	// be there. Default: no others.
	Guards guard.Allowed
	// SessionKey is a secret of at least 32 random bytes. Servers with the same
	// one know whom the others have signed in, also after a restart. A thief of
	// both the key and a visitor's cookie has the visitor's token. Default: a
	// random key, so that only this Page knows its visitors.
	SessionKey []byte
	// Observe is told of acts by hand on work items. Those on keys are told by
	// the server.
	Observe func(server.Event)
}

const (
	// Base is the path of the page.
	Base = "/ui/"
	// maxReads is how many requests read the store at a time, and maxOwnReads
	// how many of one visitor.
	maxReads    = 4
	maxOwnReads = maxReads / 2
	// readWithin bounds what a request reads, and waits for others that read.
	readWithin = 10 * time.Second
	// sendWithin bounds the time for an answer, receiveWithin that for a form.
	sendWithin    = 10 * time.Second
	receiveWithin = 10 * time.Second
	// maxForm is the size of the longest form.
	maxForm = 64 << 10
)

// Page serves the page below [Base], and hands all other requests to the
// server. It is an [http.Handler]. The zero Page is not ready: see [New].
type Page struct {
	api   *server.Server
	st    store.Store
	o     Options
	mux   *http.ServeMux
	seal  seal
	reads chan struct{}
	own   ownReads

	guesses guesses

	health struct {
		sync.Mutex
		at       time.Time
		findings []store.Finding
		problem  *problem
	}
}

// New makes the page of a server. st is the server's store. o may be nil.
func New(api *server.Server, st store.Store, o *Options) *Page {
	p := &Page{api: api, st: st, reads: make(chan struct{}, maxReads)}
	if o != nil {
		p.o = *o
	}
	if p.o.Observe == nil {
		p.o.Observe = func(server.Event) {}
	}
	var key [32]byte
	if len(p.o.SessionKey) > 0 {
		key = sha256.Sum256(p.o.SessionKey)
	} else {
		_, _ = rand.Read(key[:]) // it never fails
	}
	p.seal = newSeal(key)
	p.mux = http.NewServeMux()
	handle := func(pattern string, do func(*visit) error) { p.mux.Handle(pattern, p.handler(do)) }
	handle("GET "+Base+"{$}", p.signedIn(p.overview))
	handle("GET "+Base+"key", p.signedIn(p.key))
	handle("POST "+Base+"key", p.signedIn(p.actOnKey))
	handle("GET "+Base+"refusals", p.signedIn(p.refusals))
	handle("GET "+Base+"work", p.signedIn(p.queues))
	handle("GET "+Base+"items", p.signedIn(p.items))
	handle("GET "+Base+"item", p.signedIn(p.item))
	handle("POST "+Base+"item", p.signedIn(p.actOnItem))
	handle("GET "+Base+"store", p.signedIn(p.store))
	handle("GET "+Base+"events", p.signedIn(p.events))
	handle("GET "+Base+"signin", p.askToken)
	handle("POST "+Base+"signin", p.signIn)
	handle("POST "+Base+"signout", p.signOut)
	handle("GET "+Base+"static/{name}", p.static)
	handle("/", func(*visit) error { return notThere })
	return p
}

// ServeHTTP answers one request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // net/http reads a body that we do not read
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(receiveWithin))
	}
	switch {
	case r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, Base, http.StatusSeeOther)
	case strings.HasPrefix(r.URL.Path, Base):
		p.mux.ServeHTTP(w, r)
	default:
		p.api.ServeHTTP(w, r)
	}
}

// visit is one request for the page.
type visit struct {
	*http.Request
	w   http.ResponseWriter
	out *http.ResponseController

	id      server.Identity
	session string    // names the session in form tokens
	token   string    // goes into calls of the API
	until   time.Time // the end of the session; zero without a cookie
	release func()    // lets others read the store; nil if the visit does not read
}

// problem is an answer that says why there is no other.
type problem struct {
	Status        int
	Title, Detail string
}

func (p *problem) Error() string { return p.Detail }

var (
	notThere = &problem{
		http.StatusNotFound, "Nothing is there",
		"See whether the name is right, and whether you may read it.",
	}
	tooMuch = &problem{
		http.StatusServiceUnavailable, "Too much at once", "The server reads for others. Try again in a moment.",
	}
	noAnswer = &problem{
		http.StatusServiceUnavailable, "The store does not answer",
		"Nothing is known of the keys at the moment. Leases are not lost by that. The server's log says why.",
	}
)

// policy lets the browser run page.js and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// handler makes an http.Handler of a function that answers, or returns an
// error.
func (p *Page) handler(do func(*visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy,
			"Referrer-Policy": "same-origin", "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			h.Set(name, value)
		}
		defer func() {
			if failed := recover(); failed != nil {
				if failed != http.ErrAbortHandler { //nolint:errorlint // it is this very value
					err := fmt.Errorf("panic: %v\n%s", failed, debug.Stack())
					p.o.Observe(server.Event{Kind: server.Failed, Err: err})
				}
				panic(http.ErrAbortHandler) // the visitor must not take this for a whole page
			}
		}()
		v := &visit{Request: r, w: w, out: http.NewResponseController(w)}
		err := p.api.CheckOrigin(r)
		if err != nil {
			err = &problem{http.StatusForbidden, "Not from here", err.Error()}
		} else {
			err = do(v)
		}
		if err != nil {
			p.fail(v, err)
		}
	})
}

// fail shows an error.
func (p *Page) fail(v *visit, err error) {
	var shown *problem
	if !errors.As(err, &shown) {
		shown = noAnswer
	}
	p.show(v, shown.Status, "problem", shown.Title, shown)
}

// silent tells the server's log why a store does not answer, and the visitor
// only that it does not.
func (p *Page) silent(v *visit, err error) error {
	if v.Context().Err() == nil { // otherwise the visitor has left
		p.o.Observe(server.Event{Kind: server.Failed, Err: err})
	}
	return noAnswer
}

// rest is silent, except that damaged records do not hide the rest of a page:
// then it tells the log alone.
func (p *Page) rest(v *visit, err error) error {
	if err == nil {
		return nil
	}
	if err, damaged := p.silent(v, err), store.OnlyDamaged(err); !damaged {
		return err
	}
	return nil
}

// reading lets a few requests read the store at a time, and not all of them of
// one visitor. done must be called. show calls it, too, because a visitor may
// be slow to take a page.
func (p *Page) reading(v *visit) (ctx context.Context, done func(), err error) {
	ctx, cancel := context.WithTimeout(v.Context(), readWithin)
	leave := cancel
	slots := []chan struct{}{p.reads}
	if p.o.Access != nil { // otherwise all visitors have the same name
		own, forget := p.own.of(v.id.Name)
		slots = []chan struct{}{own, p.reads}
		leave = func() { forget(); cancel() }
	}
	for _, slot := range slots {
		select {
		case slot <- struct{}{}:
			before := leave
			leave = func() { <-slot; before() }
		case <-ctx.Done():
			leave()
			return nil, nil, tooMuch
		}
	}
	v.release = sync.OnceFunc(leave)
	return ctx, v.release, nil
}

// may reports whether the visitor may do something with a key.
func (p *Page) may(v *visit, verb server.Verb, key string) bool {
	return p.o.Access == nil || p.o.Access.May(v.id, verb, key)
}

//go:embed templates static
var files embed.FS

// templates are parsed at the first page, not at the start of every croft.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/*.html"))
})

// layout is what every page shows.
type layout struct {
	Title    string
	Page     string // the template of its main part
	Name     string // of the visitor
	Known    bool   // the server knows who visits
	SignedIn bool   // by a token
	CSRF     string
	Work     bool  // there is a ledger
	Now      int64 // the store's time in milliseconds, or 0
	Data     any
}

// shower is data that knows the store's time.
type shower interface{ now() time.Time }

// show sends a page.
func (p *Page) show(v *visit, status int, page, title string, data any) {
	l := layout{
		Title: title, Page: page, Name: v.id.Name, Known: v.session != "", SignedIn: v.token != "",
		CSRF: p.seal.formToken(v.session), Work: p.o.Ledger != nil, Data: data,
	}
	if s, ok := data.(shower); ok && !s.now().IsZero() {
		l.Now = s.now().UnixMilli()
	}
	var body bytes.Buffer
	if err := templates().ExecuteTemplate(&body, "layout", l); err != nil {
		p.o.Observe(server.Event{Kind: server.Failed, Err: err})
		http.Error(v.w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	if v.release != nil {
		v.release()
	}
	_ = v.out.SetWriteDeadline(time.Now().Add(sendWithin))
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body.Bytes()) // the visitor may have gone
}

// static answers with the style sheet, the script or the icon.
func (p *Page) static(v *visit) error {
	name := v.PathValue("name")
	kinds := map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	}
	kind, known := kinds[name]
	body, err := files.ReadFile("static/" + name)
	if !known || err != nil {
		return notThere
	}
	v.w.Header().Set("Content-Type", kind)
	v.w.Header().Set("Cache-Control", "no-cache")
	_, _ = v.w.Write(body)
	return nil
}

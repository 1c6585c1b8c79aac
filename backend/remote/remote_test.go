package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

func claim(key, owner string) tenure.Request {
	return tenure.Request{Verb: tenure.Acquire, Key: key, Secret: tenure.NewSecret(), Owner: owner, TTL: time.Minute}
}

// then makes another request of the same grant.
func then(verb tenure.Verb, mine tenure.Request) tenure.Request {
	return tenure.Request{Verb: verb, Key: mine.Key, Secret: mine.Secret}
}

func one(ctx context.Context, st store.Store, req tenure.Request) store.Answer {
	return st.Apply(ctx, []tenure.Request{req})[0]
}

// file writes a file of a test, and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWrongURLsAreRefused before anything is sent.
func TestWrongURLsAreRefused(t *testing.T) {
	empty := file(t, "empty", "\n")
	odd := file(t, "odd", "to ken")
	for _, raw := range []string{
		"http://croft.example/", "http://192.0.2.1:7117", "http://user:pw@127.0.0.1/", "http:///x", "http://127.0.0.1/#x",
		"http://127.0.0.1/?token=secret", "http://127.0.0.1/?token=@", "http://127.0.0.1/?token=@/none", "https://h/?ca=/none",
		"https://h/?cert=/none", "https://h/?cert=/none&key=/none", "http://127.0.0.1/?ca=/x", "http://127.0.0.1/?new=1",
		"http://h/?insecure=yes", "https://h/?insecure=true&insecure=true", "https://h/?ca=" + empty,
		"https://h/?token=@" + empty, "https://h/?token=@" + odd,
	} {
		st, err := store.Open(t.Context(), raw)
		if !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
		if err == nil {
			_ = st.Close()
		} else if strings.Contains(err.Error(), "secret") && strings.Contains(raw, "=secret") {
			t.Errorf("%s: the error tells the token: %v", raw, err)
		}
	}
	for _, raw := range []string{
		"http://127.0.0.1:7117", "http://localhost/", "http://[::1]:7117/base/", "https://croft.example/", "http://h/?insecure=true",
	} {
		st, err := store.Open(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		_ = st.Close()
	}
}

// TestATokenGoesToItsHostAlone: a redirect is not followed, neither there nor
// to another host.
func TestATokenGoesToItsHostAlone(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	tokens := make(chan string, 8)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(front.Close)
	st := connect(t, front.URL, &Options{TokenFile: file(t, "token", "hunter22\n")})
	a := one(t.Context(), st, claim("a/b", "ann"))
	_, getErr := st.Get(t.Context(), "a/b")
	_, watchErr := st.Watch(t.Context(), "a/b")
	for _, err := range []error{a.Err, getErr, watchErr} {
		if !errors.Is(err, store.ErrUnknown) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%v, want unknown, without the token", err)
		}
		if got := <-tokens; got != "Bearer hunter22" {
			t.Errorf("the server got %q", got)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
}

// TestAnImpostorGetsNothing: neither a token nor a request goes to a server
// that does not prove its name.
func TestAnImpostorGetsNothing(t *testing.T) {
	t.Parallel()
	token := file(t, "token", "hunter22")
	open := func(ctx context.Context, addr string) (store.Store, error) {
		return store.Open(ctx, "https://"+addr+"/?token=@"+token)
	}
	testenv.Impostors(t, map[string]testenv.Call{
		"a call": func(ctx context.Context, addr string) error {
			st, err := open(ctx, addr)
			if err != nil {
				return err
			}
			defer st.Close()
			return one(ctx, st, claim("tls/a", "ann")).Err
		},
		"a stream": func(ctx context.Context, addr string) error {
			st, err := open(ctx, addr)
			if err != nil {
				return err
			}
			defer st.Close()
			_, err = st.(store.Watcher).Watch(ctx, "tls/a")
			return err
		},
	})
}

// TestAMissingClientCertificateIsAFault, and so is a server that is not
// trusted: neither has read a request.
func TestAMissingClientCertificateIsAFault(t *testing.T) {
	t.Parallel()
	front, ca := serveTLS(t, mem.New(nil), &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	st := connect(t, front.URL, &Options{CAFile: ca})
	if a := one(t.Context(), st, claim("a/b", "ann")); !store.IsFault(a.Err) {
		t.Errorf("without a certificate: %v, want a fault", a.Err)
	}
	untrusting := connect(t, front.URL, nil)
	if a := one(t.Context(), untrusting, claim("a/b", "ann")); !store.IsFault(a.Err) {
		t.Errorf("a server that is not trusted: %v, want a fault", a.Err)
	}
}

// TestTheAnswerToAnotherClientIsNoGrant: a proxy mixes up the answers to two
// clients that ask for one key.
func TestTheAnswerToAnotherClientIsNoGrant(t *testing.T) {
	t.Parallel()
	base := mem.New(nil)
	theirs := claim("a/b", "ann")
	mixing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := base.Apply(t.Context(), []tenure.Request{theirs})
		_, _ = w.Write(wire.Answers(a, nil))
	}))
	defer mixing.Close()
	st := connect(t, mixing.URL, nil)
	if a := one(t.Context(), st, claim("a/b", "bob")); !errors.Is(a.Err, store.ErrUnknown) || store.IsFault(a.Err) {
		t.Errorf("bob is answered %+v; want unknown", a)
	}
	if a := one(t.Context(), st, theirs); a.Err != nil {
		t.Errorf("ann is answered %v; want her grant", a.Err)
	}
}

// holding is a store that keeps its answers until it may give them.
type holding struct {
	store.Store
	done chan struct{}   // receives when requests have had their effect
	give <-chan struct{} // closed when it may answer
}

func (h holding) Apply(ctx context.Context, requests []tenure.Request) []store.Answer {
	answers := h.Store.Apply(ctx, requests)
	h.done <- struct{}{}
	<-h.give
	return answers
}

// TestABrokenConnectionIsNoFault: somebody on the way sends the server rubbish
// while it works on the request. It ends the connection with an alert. The
// request has taken effect, so nobody may be told that it has not.
func TestABrokenConnectionIsNoFault(t *testing.T) {
	t.Parallel()
	base, done, give := mem.New(nil), make(chan struct{}, 1), make(chan struct{})
	front, ca := serveTLS(t, holding{base, done, give}, nil)
	defer close(give)
	between, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	go func() {
		client, err := between.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		behind, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			return
		}
		defer behind.Close()
		go io.Copy(behind, client) //nolint:errcheck // it ends with the connection
		go func() {
			<-done
			_, _ = behind.Write(append([]byte{23, 3, 3, 0, 32}, make([]byte, 32)...)) // a record that is not the client's
		}()
		_, _ = io.Copy(client, behind)
	}()
	st := connect(t, "https://"+between.Addr().String(), &Options{CAFile: ca})
	mine := claim("a/b", "ann")
	if a := one(t.Context(), st, mine); !errors.Is(a.Err, store.ErrUnknown) || store.IsFault(a.Err) {
		t.Errorf("the answer is %v; want unknown, and no fault", a.Err)
	}
	if rec, err := base.Get(t.Context(), "a/b"); err != nil || rec.Grant != mine.Secret.Grant() {
		t.Errorf("the request had no effect: %+v, %v", rec, err)
	}
}

// TestAServerThatGoesDownIsAFaultOnlyIfNothingWasSent: an idle connection
// breaks when the request is on it, and then the port is closed. The first copy
// may have counted.
func TestAServerThatGoesDownIsAFaultOnlyIfNothingWasSent(t *testing.T) {
	t.Parallel()
	// Once it is closed, nobody else gets this port.
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t))))
	if err != nil {
		t.Fatal(err)
	}
	st := connect(t, "http://"+l.Addr().String(), nil)
	first := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		buffer := make([]byte, 4096)
		_, _ = conn.Read(buffer)
		now := wire.Moment(time.Now())
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(now), now)
		<-first
		_ = l.Close()
		_, _ = conn.Read(buffer) // the request arrives, and its reply does not
	})
	if _, err := st.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(first)
	testenv.Eventually(t, "the port is closed", func() error {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = conn.Close()
			return errors.New("it is open")
		}
		return nil
	})
	a := one(t.Context(), st, claim("a/b", "ann"))
	if !errors.Is(a.Err, store.ErrUnknown) || store.IsFault(a.Err) {
		t.Errorf("after a copy was sent: %v, want unknown and no fault", a.Err)
	}
	all.Wait()
	if a := one(t.Context(), st, claim("a/b", "ann")); !store.IsFault(a.Err) {
		t.Errorf("nothing was sent: %v, want a fault", a.Err)
	}
}

// TestAnotherServerTakesOver: the connections of a client break, and another
// server on the same store answers it. The lease lives on.
func TestAnotherServerTakesOver(t *testing.T) {
	t.Parallel()
	base := mem.New(nil)
	var handler atomic.Pointer[server.Server]
	handler.Store(server.New(base.Open(nil), nil))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	st := connect(t, front.URL, nil)
	mine := claim("a/b", "ann")
	if a := one(t.Context(), st, mine); a.Err != nil {
		t.Fatal(a.Err)
	}
	woken, err := st.Watch(t.Context(), mine.Key)
	if err != nil {
		t.Fatal(err)
	}
	old := handler.Swap(server.New(base.Open(nil), nil))
	old.Drain()
	for range woken { // the stream ends, and its client polls from now on
	}
	front.CloseClientConnections()
	if a := storetest.Resolve(t.Context(), st, then(tenure.Renew, mine)); a.Err != nil || a.Record.Terms != 1 {
		t.Errorf("renewing at the other server: %v, %+v", a.Err, a.Record)
	}
	handler.Load().Drain()
}

// TestForeignAnswersAreUnknown: a server that is none of Croft's decides
// nothing.
func TestForeignAnswersAreUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter){
		"a page":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>hello</html>") },
		"not found": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"a gateway": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"another's problem": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", wire.Refused)
			w.WriteHeader(409)
			_, _ = io.WriteString(w, `{"title":"no"}`)
		},
		"an endless answer": func(w http.ResponseWriter) {
			for range wire.MaxAnswer>>16 + 2 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
	} {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		t.Cleanup(front.Close)
		st := connect(t, front.URL, nil)
		a := one(t.Context(), st, claim("a/b", "ann"))
		_, getErr := st.Get(t.Context(), "a/b")
		_, nowErr := st.Now(t.Context())
		var listErr error
		for _, listErr = range st.List(t.Context(), "") {
			if listErr != nil {
				break
			}
		}
		for what, err := range map[string]error{"Apply": a.Err, "Get": getErr, "Now": nowErr, "List": listErr} {
			if !errors.Is(err, store.ErrUnknown) || store.IsFault(err) || !a.Record.IsZero() {
				t.Errorf("%s, %s: %v, want unknown", name, what, err)
			}
		}
	}
}

// TestAListingThatBreaksOffIsNotWhole: the client is told.
func TestAListingThatBreaksOffIsNotWhole(t *testing.T) {
	t.Parallel()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(append(wire.Record(tenure.Record{Key: "a"}), '\n'))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(front.Close)
	st := connect(t, front.URL, nil)
	var failed error
	n := 0
	for _, err := range st.List(t.Context(), "") {
		if failed = err; err == nil {
			n++
		}
	}
	if n != 1 || !errors.Is(failed, store.ErrUnknown) {
		t.Errorf("%d records, then %v; want one, and unknown", n, failed)
	}
}

// damaged is a store that lists one record, and then an error.
type damaged struct{ store.Store }

func (damaged) List(context.Context, string) iter.Seq2[tenure.Record, error] {
	return func(yield func(tenure.Record, error) bool) {
		if yield(tenure.Record{Key: "a"}, nil) {
			yield(tenure.Record{}, store.Fault(errors.New("a damaged record")))
		}
	}
}

// TestAListingTellsItsError: the records before it are listed all the same.
func TestAListingTellsItsError(t *testing.T) {
	t.Parallel()
	st := connect(t, serve(t, damaged{mem.New(nil)}, nil).URL, nil)
	var failed error
	n := 0
	for _, err := range st.List(t.Context(), "") {
		if failed = err; err == nil {
			n++
		}
	}
	if n != 1 || !store.IsFault(failed) {
		t.Errorf("%d records, then %v; want one, and a fault", n, failed)
	}
}

// TestClosingEndsEverything: streams and calls that are under way.
func TestClosingEndsEverything(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(hang) }) })
	base := mem.New(nil)
	srv := server.New(base, nil)
	asked := make(chan struct{}, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked <- struct{}{}
			<-hang
		}
		srv.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.Drain(); once.Do(func() { close(hang) }); front.Close() })
	st := connect(t, front.URL, nil)
	woken, err := st.Watch(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	acts, err := st.Acts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() { called <- one(context.Background(), st, claim("a/b", "ann")).Err }()
	<-asked
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for range woken {
	}
	for range acts {
	}
	if err := <-called; !errors.Is(err, ErrClosed) || !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a call under way: %v, want unknown, and that the store is closed", err)
	}
	if a := one(t.Context(), st, claim("a/b", "ann")); !errors.Is(a.Err, ErrClosed) {
		t.Errorf("a call after closing: %v", a.Err)
	}
}

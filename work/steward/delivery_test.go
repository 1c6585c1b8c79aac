package steward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/supervise"
	"github.com/croft-dev/croft/work"
)

func effect(attempts int) work.Effect {
	return work.Effect{EffectID: work.EffectID{Item: work.NewID(), Name: "mail/customer ✓"}, Queue: "q", To: "mail", Token: 7, Attempts: attempts, Body: []byte(`{"a":1}`)}
}

// TestADeliveryIsJudgedByItsOutcomeAndAttempts: only the outcome of the
// delivery and the number of attempts decide.
func TestADeliveryIsJudgedByItsOutcomeAndAttempts(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name     string
		err      error
		attempts int
		once     bool
		want     work.EffectState
		least    time.Duration
	}{
		{"delivered", nil, 1, false, work.Sent, 0},
		{"not delivered", Undelivered(boom), 1, false, work.Pending, work.BackoffLeast},
		{"not delivered, though only once", Undelivered(boom), 1, true, work.Pending, work.BackoffLeast},
		{"not delivered, later", UndeliveredFor(boom, time.Hour), 1, false, work.Pending, time.Hour},
		{"not delivered, the last time", Undelivered(boom), 3, false, work.Failed, 0},
		{"refused", Refused(boom), 1, false, work.Failed, 0},
		{"not delivered, without a reason", Undelivered(nil), 1, false, work.Pending, work.BackoffLeast},
		{"not delivered, later, without a reason", UndeliveredFor(nil, time.Hour), 1, false, work.Pending, time.Hour},
		{"refused, without a reason", Refused(nil), 1, false, work.Failed, 0},
		{"unknown", boom, 1, false, work.Pending, work.BackoffLeast},
		{"unknown, only once", boom, 1, true, work.Unknown, 0},
		{"unknown, the last time", boom, 3, false, work.Unknown, 0},
	} {
		e := effect(c.attempts)
		e.AtMostOnce = c.once
		s := settlement(e, c.err, fence.Stamp{Key: "k", Token: 1}, 3)
		if s.State != c.want || s.Delay < c.least || s.Attempt != c.attempts || s.Effect != e.EffectID || (s.Error == "") != (c.err == nil) {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// kind returns the outcome in an error.
func kind(err error) outcome {
	v := (*verdictError)(nil)
	switch {
	case err == nil:
		return delivered
	case errors.As(err, &v):
		return v.outcome
	}
	return unknown
}

// TestAWebhookIsSignedAndNamed: the receiver can check who sent the request,
// and whether it has seen the effect before.
func TestAWebhookIsSignedAndNamed(t *testing.T) {
	secret, old := []byte(strings.Repeat("new secret", 4)), []byte(strings.Repeat("old secret", 4))
	var keys []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		keys = append(keys, req.Header.Get(HeaderKey))
		here := "http://" + req.Host + "/hook?to=ann"
		if err := Verify(secret, "http://ann@"+req.Host+"/hook?to=ann#x", req.Header, body, time.Now(), time.Minute); err != nil {
			t.Errorf("with a user and a fragment: %v", err)
		}
		for _, s := range [][]byte{secret, old} {
			if err := Verify(s, here, req.Header, body, time.Now(), time.Minute); err != nil {
				t.Error(err)
			}
		}
		for name, err := range map[string]error{
			"another secret": Verify([]byte(strings.Repeat("x", 40)), here, req.Header, body, time.Now(), time.Minute),
			"another body":   Verify(secret, here, req.Header, append(body, ' '), time.Now(), time.Minute),
			"an old request": Verify(secret, here, req.Header, body, time.Now().Add(time.Hour), time.Minute),
			"another URL":    Verify(secret, "http://elsewhere/hook?to=ann", req.Header, body, time.Now(), time.Minute),
			"another path":   Verify(secret, "http://"+req.Host+"/hook?to=bob", req.Header, body, time.Now(), time.Minute),
			"no headers":     Verify(secret, here, http.Header{}, body, time.Now(), time.Minute),
		} {
			if !errors.Is(err, fence.ErrInvalid) {
				t.Errorf("%s: %v, want invalid", name, err)
			}
		}
		for _, name := range []string{HeaderKey, HeaderTime, HeaderItem, HeaderEffect, HeaderQueue, HeaderToken, HeaderAttempt} {
			changed, twice := req.Header.Clone(), req.Header.Clone()
			changed.Set(name, "1"+changed.Get(name))
			twice.Add(name, "1")
			for how, h := range map[string]http.Header{"changed": changed, "twice": twice} {
				if err := Verify(secret, here, h, body, time.Now(), 1<<62); !errors.Is(err, fence.ErrInvalid) {
					t.Errorf("%s, %s: %v, want invalid", name, how, err)
				}
			}
		}
		if req.Header.Get("Content-Type") != "application/json" || req.Header.Get("Authorization") != "Bearer x" || req.Header.Get(HeaderToken) != "7" {
			t.Errorf("the headers are %v", req.Header)
		}
	}))
	defer srv.Close()
	w := Webhook{URL: strings.Replace(srv.URL, "http://", "http://ann:pw@", 1) + "/hook?to=ann#x", Secrets: [][]byte{secret, old}, Header: http.Header{"Authorization": {"Bearer x"}}}
	e := effect(1)
	for e.Attempts = 1; e.Attempts < 4; e.Attempts++ {
		if err := w.Deliver(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 3 || keys[0] != e.EffectID.String() || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("the keys are %q", keys)
	}
}

// TestASecretThatCanBeGuessedOrIsSharedIsRefused: verify refuses such a secret,
// the webhook does, and the dispatcher does before it delivers anything.
func TestASecretThatCanBeGuessedOrIsSharedIsRefused(t *testing.T) {
	long := bytes.Repeat([]byte("s"), MinSecret)
	for _, short := range [][]byte{nil, {}, []byte("hunter2"), long[1:]} {
		h := http.Header{}
		for _, name := range signed {
			h.Set(name, "1")
		}
		h.Set(HeaderSignature, Sign(short, "http://a/", h, nil))
		if err := Verify(short, "http://a/", h, nil, time.Unix(1, 0), time.Minute); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("a forged request under the secret %q: %v, want invalid", short, err)
		}
		if err := (Webhook{URL: "http://127.0.0.1:1/", Secrets: [][]byte{short}}).Deliver(t.Context(), effect(1)); kind(err) != notDelivered || !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("a delivery under the secret %q: %v", short, err)
		}
	}
	hook := func(url string, secret []byte) Webhook { return Webhook{URL: url, Secrets: [][]byte{secret}} }
	pointer := func(w Webhook) *Webhook { return &w }
	for name, to := range map[string]map[string]Deliverer{
		"one secret for two hosts":   {"a": hook("https://a.example/", long), "b": hook("https://b.example/", long)},
		"one secret for two tenants": {"a": hook("https://a.example/x", long), "b": hook("https://a.example/y", long)},
		"behind pointers":            {"a": pointer(hook("https://a.example/", long)), "b": pointer(hook("https://b.example/", long))},
		"a short secret":             {"a": hook("https://a.example/", long[1:])},
	} {
		if err := RunDispatcher(t.Context(), nil, nil, to, nil); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if err := checkSecrets(map[string]Deliverer{"a": hook("https://a.example/", long), "b": hook("https://a.example/", long), "c": hook("https://c.example/", append(long, 'c'))}); err != nil {
		t.Errorf("one receiver under two names, and another: %v", err)
	}
}

// TestAnAnswerIsTakenForWhatItSays: the receiver's status decides between
// delivered, not delivered, refused and unknown.
func TestAnAnswerIsTakenForWhatItSays(t *testing.T) {
	for code, want := range map[int]outcome{200: delivered, 204: delivered, 302: refused, 400: refused, 404: refused, 410: refused, 408: notDelivered, 429: notDelivered, 503: notDelivered, 500: unknown, 502: unknown, 504: unknown} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(code)
		}))
		err := Webhook{URL: srv.URL}.Deliver(t.Context(), effect(1))
		if kind(err) != want {
			t.Errorf("%d: %v", code, err)
		}
		if v := (*verdictError)(nil); code == 429 && (!errors.As(err, &v) || v.delay != 2*time.Minute) {
			t.Errorf("Retry-After: %v", err)
		}
		srv.Close()
	}
}

// TestAnEffectThatNeverLeftIsNotDelivered: without a connection the effect is
// not delivered. Without an answer the outcome is unknown. Neither error
// contains the password.
func TestAnEffectThatNeverLeftIsNotDelivered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close() // no answer
		}
	}()
	hook := Webhook{URL: "http://ann:password@" + address, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	err = hook.Deliver(t.Context(), effect(1))
	if kind(err) != unknown || strings.Contains(err.Error(), "password") {
		t.Errorf("no answer: %v", err)
	}
	_ = l.Close()
	err = hook.Deliver(t.Context(), effect(1))
	if kind(err) != notDelivered || strings.Contains(err.Error(), "password") {
		t.Errorf("no connection: %v", err)
	}
	if err := (Webhook{URL: "://"}).Deliver(t.Context(), effect(1)); kind(err) != refused {
		t.Errorf("no URL: %v", err)
	}
}

// TestNoErrorTellsTheSecretsOfAURL: the error of a delivery stays in the
// ledger, and receivers log that of a signature. In a URL the user, the path
// and the query may be secret.
func TestNoErrorTellsTheSecretsOfAURL(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	address := srv.Listener.Addr().String()
	path := "http://ann:hunter22@" + address + "/services/hunter22?code=hunter22"
	errs := map[string]error{"an answer": Webhook{URL: path}.Deliver(t.Context(), effect(1))}
	srv.Close()
	errs["no connection"] = Webhook{URL: path}.Deliver(t.Context(), effect(1))
	for name, err := range errs {
		if err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v; want an error that names %s", name, err, address)
		}
	}
	for _, unreadable := range []string{"https://ann:hunter22@h:port/", "https://ann:hun%zzhunter22@h/", "https://ann:hunter22/@h/"} {
		err := Webhook{URL: unreadable}.Deliver(t.Context(), effect(1))
		if kind(err) != refused || !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v; want it refused as invalid", unreadable, err)
		}
		errs[unreadable] = err
	}
	h := http.Header{}
	for _, name := range append([]string{HeaderSignature}, signed...) {
		h.Set(name, "1")
	}
	err := Verify(bytes.Repeat([]byte("s"), MinSecret), "https://ann:hunter22@h/", h, nil, time.Now(), time.Minute)
	if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "@h/") {
		t.Errorf("another signature: %v; want an error that names the receiver", err)
	}
	errs["a signature"] = err
	for name, err := range errs {
		if strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

// TestMain lets the test binary play a command. Its arguments say what to do.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "deliver" {
		body, _ := io.ReadAll(os.Stdin)
		if os.Getenv("CROFT_IDEMPOTENCY_KEY") == "" || os.Getenv("CROFT_ATTEMPT") != "2" || string(body) != `{"a":1}` {
			os.Exit(99)
		}
		_, _ = os.Stderr.WriteString("said " + os.Args[2])
		switch os.Args[2] {
		case "ok":
			os.Exit(0)
		case "again":
			os.Exit(ExitUndelivered)
		case "never":
			os.Exit(ExitRefused)
		case "hang":
			select {}
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestACommandSaysByItsExitCode: the exit code decides the outcome. The command
// gets all facts in its environment.
func TestACommandSaysByItsExitCode(t *testing.T) {
	for arg, want := range map[string]outcome{"ok": delivered, "again": notDelivered, "never": refused, "break": unknown} {
		err := Command{Args: []string{os.Args[0], "deliver", arg}}.Deliver(t.Context(), effect(2))
		if kind(err) != want || err != nil && !strings.Contains(err.Error(), "said "+arg) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if err := (Command{Args: []string{"/no/such/program"}}).Deliver(t.Context(), effect(2)); kind(err) != notDelivered {
		t.Errorf("no such program: %v", err)
	}
	if err := (Command{}).Deliver(t.Context(), effect(2)); kind(err) != refused {
		t.Errorf("no program: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // within it the command must start
	defer cancel()
	if err := (Command{Args: []string{os.Args[0], "deliver", "hang"}}).Deliver(ctx, effect(2)); kind(err) != unknown {
		t.Errorf("a command that hangs: %v", err)
	}
}

// TestACommandThatMayHaveRunIsNotCalledUndelivered: the dispatcher would run it
// again, although its effect may be sent only once.
func TestACommandThatMayHaveRunIsNotCalledUndelivered(t *testing.T) {
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, supervise.ErrWardenLost} {
		if !mayHaveRun(errors.Join(err, &supervise.SurvivorsError{})) {
			t.Errorf("%v: the command may have run", err)
		}
	}
	if mayHaveRun(&supervise.StartError{}) || mayHaveRun(nil) {
		t.Error("a command that could not be started has not run")
	}
}

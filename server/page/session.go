package page

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/store"
)

// seal seals what a browser keeps: nobody else can read, make or change it. It
// also makes the tokens of forms.
type seal struct {
	aead cipher.AEAD
	mac  [32]byte
}

func newSeal(key [32]byte) seal {
	derive := func(use string) [32]byte {
		m := hmac.New(sha256.New, key[:])
		m.Write([]byte(use))
		return [32]byte(m.Sum(nil))
	}
	k := derive("cookie")
	block, _ := aes.NewCipher(k[:]) // a key of 32 bytes is right
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return seal{aead, derive("form")}
}

// session is the content of the cookie.
type session struct {
	Token string `json:"t"`
	ID    string `json:"s"`
	Until int64  `json:"u"` // in seconds since 1970
}

const (
	// sessionFor is how long a visitor stays signed in.
	sessionFor = 12 * time.Hour
	// maxSealed is the longest seal of a token that fits into a cookie.
	maxSealed = 3840
)

func (s seal) close(c session) string {
	text, _ := json.Marshal(c) // it has strings and a number
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// open returns the session in a cookie's value, if it is one of ours that is
// not over.
func (s seal) open(value string, now time.Time) (c session, ok bool) {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return c, false
	}
	text, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(text, &c) != nil {
		return session{}, false
	}
	return c, now.Unix() < c.Until
}

// formToken makes the token of the forms of a session. Another site cannot
// know it.
func (s seal) formToken(session string) string {
	m := hmac.New(sha256.New, s.mac[:])
	m.Write([]byte(session))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// doneURL leads to a page that says that an act was done. Only a link of this
// session says so: others could make up acts.
func (p *Page) doneURL(v *visit, path, verb string, q url.Values) string {
	q.Set("done", verb)
	q.Set("proof", p.doneProof(v, path, q))
	return Base + path + "?" + q.Encode()
}

func (p *Page) doneProof(v *visit, path string, q url.Values) string {
	return p.seal.formToken(strings.Join([]string{v.session, path, q.Get("done"), q.Get("key"), q.Get("id")}, "\x00"))
}

// done returns the act that was just done, if a link of this session says so.
func (p *Page) done(v *visit, path string) string {
	q := v.URL.Query()
	if hmac.Equal([]byte(q.Get("proof")), []byte(p.doneProof(v, path, q))) {
		return q.Get("done")
	}
	return ""
}

// cookieNames are the names that a cookie of ours may have. A browser takes a
// __Host- cookie only over TLS, and from no other host. Servers on other ports
// of the host get the same cookies, so each port has a name of its own.
func cookieNames(r *http.Request) []string {
	name := "croft"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		return []string{"__Host-" + name}
	}
	return []string{"__Host-" + name, name} // a proxy may add TLS
}

// setCookie keeps value in the browser until that ends.
func (v *visit) setCookie(value string) {
	names := cookieNames(v.Request)
	// Behind a proxy, only the origin of the form tells of TLS.
	secure := v.TLS != nil || strings.HasPrefix(v.Header.Get("Origin"), "https://")
	name := names[len(names)-1]
	if secure {
		name = names[0]
	}
	v.cookie(name, value, 0, secure)
}

// dropCookies deletes the cookies in the browser.
func (v *visit) dropCookies() {
	for _, name := range cookieNames(v.Request) {
		if _, err := v.Cookie(name); err == nil {
			v.cookie(name, "", -1, strings.HasPrefix(name, "__Host-"))
		}
	}
}

func (v *visit) cookie(name, value string, age int, secure bool) {
	http.SetCookie(v.w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure,
		SameSite: http.SameSiteStrictMode,
	})
}

// identify finds out who visits: by the cookie, or else by the certificate of
// the browser.
func (p *Page) identify(v *visit) error {
	if p.o.Access == nil {
		v.session = "everybody"
		return nil
	}
	for _, name := range cookieNames(v.Request) {
		if cookie, err := v.Cookie(name); err == nil && v.token == "" {
			if c, ok := p.seal.open(cookie.Value, time.Now()); ok {
				v.session, v.token, v.until = c.ID, c.Token, time.Unix(c.Until, 0)
			}
		}
	}
	id, err := p.o.Access.Identify(p.asClient(v, v.token))
	if err != nil {
		v.session, v.token = "", ""
		return err
	}
	v.id, v.session = id, cmp.Or(v.session, "certificate of "+id.Name)
	return nil
}

// asClient makes a request of the API with a token, if it is not "".
func (p *Page) asClient(v *visit, token string) *http.Request {
	r := v.Clone(v.Context())
	r.Header = http.Header{}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// signedIn lets visitors whom the server knows come in. Others are asked for
// their token. A form must carry the token of its session.
func (p *Page) signedIn(do func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		switch err := p.identify(v); {
		case errors.Is(err, store.ErrUnknown):
			return noAnswer
		case err != nil && v.Method == http.MethodGet:
			http.Redirect(v.w, v.Request, Base+"signin?next="+url.QueryEscape(v.URL.RequestURI()), http.StatusSeeOther)
			return nil
		case err != nil:
			return &problem{http.StatusUnauthorized, "Signed out", "Nothing was done. Sign in and try again."}
		}
		if v.Method == http.MethodPost {
			if err := p.readForm(v); err != nil {
				return err
			}
		}
		return do(v)
	}
}

// readForm reads a form, and checks that this page has made it.
func (p *Page) readForm(v *visit) error {
	if err := readFields(v); err != nil {
		return err
	}
	if !hmac.Equal([]byte(v.PostForm.Get("csrf")), []byte(p.seal.formToken(v.session))) {
		return &problem{
			http.StatusForbidden, "An old form",
			"Nothing was done. The form is from before you signed in, or not from this server. Open the page again.",
		}
	}
	return nil
}

func readFields(v *visit) error {
	_ = v.out.SetReadDeadline(time.Now().Add(receiveWithin))
	v.Body = http.MaxBytesReader(v.w, v.Body, maxForm)
	if err := v.ParseForm(); err != nil {
		return &problem{http.StatusBadRequest, "No form", "The form did not arrive whole, or is too long."}
	}
	_ = v.out.SetReadDeadline(time.Time{})
	return nil
}

// signInData is what the page for signing in shows.
type signInData struct {
	Next   string
	Wrong  string // why the token was refused
	Needed bool   // the server has identities
}

// askToken answers GET signin.
func (p *Page) askToken(v *visit) error {
	data := signInData{Next: v.URL.Query().Get("next"), Needed: p.o.Access != nil}
	p.show(v, http.StatusOK, "signin", "Sign in", data)
	return nil
}

// signIn answers POST signin. Another site cannot sign a visitor in: the origin
// was checked, and a token is needed that the site does not have.
func (p *Page) signIn(v *visit) error {
	if err := readFields(v); err != nil {
		return err
	}
	next, token := v.PostForm.Get("next"), strings.TrimSpace(v.PostForm.Get("token"))
	if p.o.Access == nil {
		http.Redirect(v.w, v.Request, Base, http.StatusSeeOther)
		return nil
	}
	var wrong string
	status := http.StatusUnauthorized
	switch {
	case token == "":
		wrong = "Paste the token that you were given."
	case len(p.seal.close(session{Token: token})) > maxSealed,
		strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		wrong = "This is no token that a browser can keep: it is too long, or has spaces or strange characters."
	default:
		wrong, status = p.try(v, token)
	}
	if wrong != "" {
		p.show(v, status, "signin", "Sign in", signInData{Next: next, Wrong: wrong, Needed: true})
		return nil
	}
	c := session{Token: token, ID: rand.Text(), Until: time.Now().Add(sessionFor).Unix()}
	v.setCookie(p.seal.close(c))
	http.Redirect(v.w, v.Request, inside(next), http.StatusSeeOther)
	return nil
}

// try says why a token is refused, or "". An address that has tried too many
// wrong tokens must wait, also with the right one: otherwise the answer would
// tell which one is right.
func (p *Page) try(v *visit, token string) (wrong string, status int) {
	right, wait := p.guesses.begin(addressOf(v.RemoteAddr))
	if wait > 0 {
		seconds := int(math.Ceil(wait.Seconds()))
		v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		return fmt.Sprintf("Too many wrong tokens came from your address. Try again in %d s.", seconds),
			http.StatusTooManyRequests
	}
	_, err := p.o.Access.Identify(p.asClient(v, token))
	if err != nil && !errors.Is(err, store.ErrUnknown) {
		return "No identity has this token. See whether it was renewed.", http.StatusUnauthorized
	}
	right()
	if err != nil {
		wrong = "The server cannot find out at the moment whose token this is. Try again."
	}
	return wrong, http.StatusUnauthorized
}

// inside returns a path of the page, or its beginning if the path leads
// elsewhere.
func inside(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, Base) ||
		strings.ContainsAny(path, "\\\r\n\t") {
		return Base
	}
	return u.RequestURI()
}

// signOut answers POST signout.
func (p *Page) signOut(v *visit) error {
	if err := p.identify(v); err == nil {
		if err := p.readForm(v); err != nil {
			return err
		}
	}
	v.dropCookies()
	http.Redirect(v.w, v.Request, Base+"signin", http.StatusSeeOther)
	return nil
}

package servecmd

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// listenView says in JSON that the server listens.
type listenView struct {
	Time    cli.When `json:"time"`
	Event   string   `json:"event"`
	Address string   `json:"address"`
	TLS     bool     `json:"tls"`
	Policy  bool     `json:"policy"`
	Store   string   `json:"store"`
	// Work says that the server also keeps work items.
	Work bool `json:"work"`
}

// listens says that the server listens. Only now can clients reach it.
func (a *app) listens(addr net.Addr, secure bool, o *server.Options, name string) {
	name, policy := store.Redact(name), o.Access != nil
	if a.JSON {
		a.Print(listenView{cli.When(time.Now()), "listening", addr.String(), secure, policy, name, o.Ledger != nil})
		return
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	fmt.Fprintf(a.Stderr, "croft: serving %s at %s://%s; end with ctrl-C\n", cli.Word(name), scheme, addr)
	if o.Ledger == nil {
		fmt.Fprintln(a.Stderr, "croft: leases only: this store keeps no work items; a SQLite file or PostgreSQL does")
	}
	if !policy {
		fmt.Fprintln(a.Stderr, "croft: without --policy, everybody who reaches this address may do everything")
	}
}

// actView is an act by hand in JSON: the audit log.
type actView struct {
	Time     cli.When `json:"time"`
	Event    string   `json:"event"`
	Identity string   `json:"identity,omitempty"`
	Remote   string   `json:"remote"`
	Act      string   `json:"act"`
	Key      string   `json:"key"`
	Owner    string   `json:"owner,omitempty"`
	Actor    string   `json:"actor"`
	Note     string   `json:"note"`
	Error    string   `json:"error,omitempty"`
}

// failureView is an error of the store, or of the server, in JSON.
type failureView struct {
	Time  cli.When `json:"time"`
	Event string   `json:"event"`
	Error string   `json:"error"`
}

// tellEvery is how often the same failure is told.
const tellEvery = time.Minute

// tell returns an observer that prints acts by hand and failures.
func (a *app) tell() func(server.Event) {
	var mu sync.Mutex
	told := map[string]time.Time{} // when each failure was told
	return func(e server.Event) {
		message := ""
		if e.Err != nil {
			message = a.Redact(e.Err.Error())
		}
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == server.Acted {
			a.acted(e, message)
			return
		}
		now := time.Now()
		if message == "" || now.Sub(told[message]) < tellEvery {
			return
		}
		if len(told) >= 100 {
			clear(told)
		}
		told[message] = now
		a.failure(message)
	}
}

func (a *app) acted(e server.Event, message string) {
	if a.JSON {
		a.Print(actView{
			cli.When(time.Now()), "acted", e.Identity, e.Remote, string(e.Act), e.Key, e.Owner, e.Actor, e.Note,
			message,
		})
		return
	}
	what := "done"
	switch {
	case errors.Is(e.Err, store.ErrUnknown):
		what = "outcome unknown: " + cli.Lines(message)
	case message != "":
		what = "refused: " + cli.Lines(message)
	}
	fmt.Fprintf(a.Stderr, "croft: %s of %s by %s from %s (%s): %s\n",
		cli.Word(string(e.Act)), cli.Word(e.Key), cli.Word(e.Actor), e.Remote, cli.Line(e.Note), what)
}

func (a *app) failure(message string) {
	if a.JSON {
		a.Print(failureView{cli.When(time.Now()), "failed", message})
		return
	}
	fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(message))
}

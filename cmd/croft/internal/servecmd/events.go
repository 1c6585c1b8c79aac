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
}

// listens says that the server listens. Only now can clients reach it.
func (a *app) listens(addr net.Addr, secure, policy bool, name string) {
	name = store.Redact(name)
	if a.JSON {
		a.Print(listenView{cli.When(time.Now()), "listening", addr.String(), secure, policy, name})
		return
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	fmt.Fprintf(a.Stderr, "croft: serving %s at %s://%s; end with ctrl-C\n", cli.Word(name), scheme, addr)
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
	Result   string   `json:"result"`
	Error    string   `json:"error,omitempty"`
}

// failureView is an error of the store in JSON, or its end.
type failureView struct {
	Time  cli.When `json:"time"`
	Event string   `json:"event"`
	Error string   `json:"error,omitempty"`
}

// tell returns an observer that prints acts by hand and failures. It says an
// error of the store once, and when the store answers again.
func (a *app) tell() func(server.Event) {
	var mu sync.Mutex
	failing := ""
	return func(e server.Event) {
		message := ""
		if e.Err != nil {
			message = a.Redact(e.Err.Error())
		}
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case server.Acted:
			a.acted(e, message)
		case server.Called:
			if message == failing {
				return
			}
			failing = message
			a.failure("store", message, "the store answers again")
		case server.Answered:
			if message != "" && message != failing {
				failing = message
				a.failure("failed", message, "")
			}
		}
	}
}

func (a *app) acted(e server.Event, message string) {
	if a.JSON {
		a.Print(actView{
			cli.When(time.Now()), "acted", e.Identity, e.Remote, string(e.Act), e.Key, e.Owner, e.Actor, e.Note,
			resultOf(e), message,
		})
		return
	}
	what := resultOf(e)
	if message != "" {
		what += ": " + cli.Lines(message)
	}
	fmt.Fprintf(a.Stderr, "croft: %s of %s by %s from %s (%s): %s\n",
		cli.Word(string(e.Act)), cli.Word(e.Key), cli.Word(e.Actor), e.Remote, cli.Line(e.Note), what)
}

// resultOf says what became of an act.
func resultOf(e server.Event) string {
	switch {
	case e.Err == nil:
		return "done"
	case errors.Is(e.Err, store.ErrUnknown):
		return "unknown" // it may have been done
	}
	return "refused"
}

func (a *app) failure(event, message, over string) {
	if a.JSON {
		a.Print(failureView{cli.When(time.Now()), event, message})
		return
	}
	if message == "" {
		message = over
	}
	fmt.Fprintf(a.Stderr, "croft: %s\n", cli.Lines(message))
}

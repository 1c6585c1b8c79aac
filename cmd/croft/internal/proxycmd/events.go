package proxycmd

import (
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
)

// listenView says in JSON that the proxy listens.
type listenView struct {
	Time     cli.When `json:"time"`
	Event    string   `json:"event"`
	Address  string   `json:"address"`
	Upstream string   `json:"upstream"`
	Marks    string   `json:"marks"`
	Observe  bool     `json:"observe,omitempty"`
}

func (a *app) proxyListens(v listenView) {
	v.Time, v.Event = cli.When(time.Now()), "listening"
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintf(a.Stderr, "croft: proxy on http://%s in front of %s, marks at %s; end with ctrl-C\n", v.Address,
		cli.Word(v.Upstream), cli.Word(v.Marks))
	if v.Observe {
		fmt.Fprintln(a.Stderr, "croft: it only OBSERVES: it refuses nothing, and stale owners can write")
	}
}

// proxyEventView is an event of the proxy in JSON.
type proxyEventView struct {
	Time     cli.When    `json:"time"`
	Event    string      `json:"event"`
	Resource string      `json:"resource,omitempty"`
	Method   string      `json:"method,omitempty"`
	Key      string      `json:"key,omitempty"`
	Token    fence.Token `json:"token,omitempty"`
	Status   int         `json:"status,omitempty"`
	Code     string      `json:"code,omitempty"`
	Took     string      `json:"took,omitempty"`
	For      string      `json:"for,omitempty"`
	Error    string      `json:"error,omitempty"`
}

// proxyEvents returns an observer that prints events. With --json it prints all
// of them. Otherwise it prints on standard error those that an operator should
// know.
func (a *app) proxyEvents() func(gate.Event) {
	var mu sync.Mutex
	return func(e gate.Event) {
		message := ""
		if e.Err != nil {
			message = a.Redact(e.Err.Error())
		}
		span := ""
		switch {
		case e.For == croft.Forever:
			span = "forever"
		case e.For != 0:
			span = e.For.String()
		}
		mu.Lock()
		defer mu.Unlock()
		if a.JSON {
			v := proxyEventView{
				Time: cli.When(time.Now()), Event: string(e.Kind), Resource: e.Resource, Method: e.Method, Key: e.Key,
				Token:  e.Token,
				Status: e.Status, Code: e.Code, For: span, Error: message,
			}
			if e.Took != 0 {
				v.Took = e.Took.String()
			}
			a.Print(v)
			return
		}
		var what string
		switch e.Kind {
		case gate.Refused:
			what = fmt.Sprintf("refused: %s (%d %s): %s", cli.Word(e.Method), e.Status, e.Code, message)
		case gate.Observed:
			what = fmt.Sprintf("observed, and let in: %s (%d %s): %s", cli.Word(e.Method), e.Status, e.Code, message)
		case gate.InDoubt:
			what = fmt.Sprintf("in doubt: %s of token %d: %s", cli.Word(e.Method), e.Token, message)
		case gate.Closed:
			what = fmt.Sprintf("closed for %s: %s", span, message)
			if e.For == croft.Forever {
				what = "closed until an operator opens it: " + message
			}
		case gate.ReadFailed:
			what = fmt.Sprintf("unanswered: %s (%d %s): %s", cli.Word(e.Method), e.Status, e.Code, message)
		case gate.Opened:
			what = "open again"
		default:
			return
		}
		fmt.Fprintf(a.Stderr, "croft: %s: %s\n", cli.Word(e.Resource), cli.Lines(what))
	}
}

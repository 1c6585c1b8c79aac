package gatecmd

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/gate"
)

// Listening says in JSON that a proxy listens.
type Listening struct {
	Time     cli.When `json:"time"`
	Event    string   `json:"event"`
	Address  string   `json:"address"`
	Upstream string   `json:"upstream"`
	Marks    string   `json:"marks"`
	Observe  bool     `json:"observe,omitempty"`
}

// Tell says that a proxy listens.
func (v Listening) Tell(a *cli.App) {
	v.Time, v.Event = cli.When(time.Now()), "listening"
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintf(a.Stderr, "croft: proxy on http://%s in front of %s, marks at %s; end with ctrl-C\n", v.Address,
		cli.Word(v.Upstream), cli.Word(v.Marks))
	if v.Observe {
		TellTrial(a)
	}
}

// TellTrial says that a gate refuses nothing.
func TellTrial(a *cli.App) {
	fmt.Fprintln(a.Stderr, "croft: it only OBSERVES: it refuses nothing, and stale owners can write")
}

// eventView is an event of a gate in JSON.
type eventView struct {
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

// Events returns an observer that prints events. With --json it prints all of
// them. Otherwise it prints on standard error those that an operator should
// know. An event of no resource is one of the given name.
func Events(a *cli.App, name string) func(gate.Event) {
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
			v := eventView{
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
		why := e.Code
		if e.Status != 0 {
			why = fmt.Sprintf("%d %s", e.Status, e.Code)
		}
		var what string
		switch e.Kind {
		case gate.Refused:
			what = fmt.Sprintf("refused: %s (%s): %s", cli.Word(e.Method), why, message)
		case gate.Observed:
			what = fmt.Sprintf("observed, and let in: %s (%s): %s", cli.Word(e.Method), why, message)
		case gate.InDoubt:
			what = fmt.Sprintf("in doubt: %s of token %d: %s", cli.Word(e.Method), e.Token, message)
		case gate.Closed:
			what = fmt.Sprintf("closed for %s: %s", span, message)
			if e.For == croft.Forever {
				what = "closed until an operator opens it: " + message
			}
		case gate.ReadFailed:
			what = fmt.Sprintf("unanswered: %s (%s): %s", cli.Word(e.Method), why, message)
		case gate.Opened:
			what = "open again"
		default:
			return
		}
		fmt.Fprintf(a.Stderr, "croft: %s: %s\n", cli.Word(cmp.Or(e.Resource, name)), cli.Lines(what))
	}
}

package holdcmd

import (
	"errors"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/tenure"
)

// protocol is the version of the messages. A change that an old parent would
// misunderstand makes it one higher.
const protocol = 1

// The messages to the parent. Parents rely on the names, so they never change.
type (
	helloEvent struct {
		Event    string `json:"event"`
		Protocol int    `json:"protocol"`
		Version  string `json:"version"`
		PID      int    `json:"pid"`
	}
	// about begins every message about a lease. A message that answers no
	// request has no id.
	about struct {
		Event string `json:"event"`
		ID    int64  `json:"id,omitempty"`
		Lease string `json:"lease,omitempty"`
	}
	grantedEvent struct {
		about
		Key        string       `json:"key"`
		Token      fence.Token  `json:"token"`
		Stamp      string       `json:"stamp"`
		Owner      string       `json:"owner"`
		Cause      tenure.Cause `json:"cause"`
		Deadline   cli.When     `json:"deadline"`
		TTL        float64      `json:"ttl"`
		Remaining  float64      `json:"remaining"`
		LeaseFile  string       `json:"lease_file"`
		Checkpoint []byte       `json:"checkpoint"`
	}
	// aliveEvent answers verify, renew, report and checkpoint.
	aliveEvent struct {
		about
		Token     fence.Token `json:"token"`
		Deadline  cli.When    `json:"deadline"`
		TTL       float64     `json:"ttl"`
		Remaining float64     `json:"remaining"`
	}
	lostEvent struct {
		about
		Key     string      `json:"key"`
		Token   fence.Token `json:"token"`
		Loss    croft.Loss  `json:"loss"`
		Message string      `json:"message"`
		Owner   string      `json:"owner"` // the present one, if the store has told
	}
	releasedEvent struct {
		about
		Key   string      `json:"key,omitempty"`
		Token fence.Token `json:"token,omitempty"`
	}
	errorEvent struct {
		about
		Error cli.Facts `json:"error"`
	}
)

// done names the events that answer requests.
var done = map[string]string{
	doVerify: "verified", doRenew: "renewed", doReport: "reported", doCheckpoint: "saved",
}

// alive is the answer to a request about a lease that lives.
func alive(req *request, l *croft.Lease) aliveEvent {
	return aliveEvent{
		about: about{done[req.do], req.id, req.lease}, Token: l.Token(), Deadline: cli.When(l.Record().Deadline),
		TTL: l.Deed().TTL.Seconds(), Remaining: remaining(l),
	}
}

// remaining is the time until the local deadline, in whole microseconds, never
// rounded up.
func remaining(l *croft.Lease) float64 {
	return l.Remaining().Truncate(time.Microsecond).Seconds()
}

// lostBy is the message that a lease is lost.
func (p *process) lostBy(name string, err error) lostEvent {
	e := lostEvent{about: about{Event: "lost", Lease: name}, Message: cut(p.app.Redact(err.Error()))}
	var lost *croft.LostError
	if errors.As(err, &lost) {
		e.Key, e.Token, e.Loss = lost.Key, lost.Token, lost.Loss
	}
	var notOwned *tenure.NotOwnedError
	if errors.As(err, &notOwned) {
		e.Owner = notOwned.Record.Owner
	}
	return e
}

// maxMessage is how much of an error's message a parent gets.
const maxMessage = 4 << 10

func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return message[:maxMessage] + "…"
}

// errCancelled ends an acquire that the parent has given up.
var errCancelled = errors.New("the acquire was given up before the key was granted")

// failure is the message of an error. Its facts have durations in seconds, like
// all messages.
func (p *process) failure(id int64, name string, err error) errorEvent {
	f := p.app.FactsOf(err)
	f.Add("message", cut(p.app.Redact(err.Error())))
	if errors.Is(err, errCancelled) {
		f.Add("code", "cancelled")
	}
	var held *tenure.HeldError
	if errors.As(err, &held) {
		f.Add("remaining", held.Remaining().Seconds())
	}
	return errorEvent{about{"error", id, name}, f}
}

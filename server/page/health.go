package page

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// healthFor is how long the findings of an examination are shown again.
const healthFor = 15 * time.Second

// storeData is what the page of the store shows.
type storeData struct {
	At       time.Time
	Took     time.Duration // to answer
	Ahead    time.Duration // the store's clock, of the server's
	Operator bool          // of all keys
	Store    string
	Verdict  store.Level
	Findings []store.Finding
	Problem  *problem
}

func (d *storeData) now() time.Time { return d.At }

// Offset says how the store's clock differs from the server's. Many stores'
// clocks tell whole seconds.
func (d *storeData) Offset() string {
	switch {
	case d.Ahead > time.Second:
		return glance.Short(d.Ahead) + " ahead of this server's"
	case d.Ahead < -time.Second:
		return glance.Short(-d.Ahead) + " behind this server's"
	}
	return "as this server's, within a second"
}

// store answers GET store: how fit the store is.
func (p *Page) store(v *visit) error {
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	d := &storeData{Operator: p.may(v, server.Operate, ""), Verdict: store.OK}
	begun := time.Now()
	d.At, err = p.st.Now(ctx)
	done()
	if err != nil {
		return p.silent(v, err)
	}
	d.Took = time.Since(begun)
	d.Ahead = d.At.Sub(begun.Add(d.Took / 2)).Round(time.Millisecond)
	if d.Operator {
		d.Store = p.o.Store
		d.Findings, d.Problem = p.examine(v)
		for _, f := range d.Findings {
			if f.Level == store.Bad || f.Level == store.Warn && d.Verdict == store.OK {
				d.Verdict = f.Level
			}
		}
	}
	p.show(v, http.StatusOK, "store", "Store", d)
	return nil
}

// examine asks the API how fit the store is. An examination costs much, so all
// who look at the page share one for a moment.
func (p *Page) examine(v *visit) ([]store.Finding, *problem) {
	p.health.Lock()
	defer p.health.Unlock()
	if time.Since(p.health.at) > healthFor {
		p.health.findings = nil
		var body []byte
		if body, p.health.problem = p.call(v, http.MethodGet, "/v1/examine", nil); p.health.problem == nil {
			var answer struct{ Findings []store.Finding }
			if json.Unmarshal(body, &answer) != nil {
				p.health.problem = noAnswer
			}
			p.health.findings = answer.Findings
		}
		if v.Context().Err() == nil { // otherwise the visitor left in the middle of it
			p.health.at = time.Now()
		}
	}
	return p.health.findings, p.health.problem
}

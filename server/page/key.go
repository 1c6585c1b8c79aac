package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store/refusals"
	"github.com/croft-dev/croft/tenure"
)

// keyData is what the page of one key shows.
type keyData struct {
	keyRow
	Name     string
	Cause    string
	Terms    []termRow // newest first
	Line     timeline
	Refusals []refusalRow
	Marks    []guardRow
	Acts     bool // the visitor may act by hand
	Refused  *problem
	Form     actForm
	Done     string // the act that was just done
}

func (d *keyData) now() time.Time { return d.keyRow.Now }

// Row is the key as listings have it.
func (d *keyData) Row() keyRow { return d.keyRow }

// actForm is an act by hand, as it was asked for.
type actForm struct {
	Verb, Note, Owner, TTL, Actor string
	Named                         bool // the visitor has a name
	TTLs                          []string
}

var ttls = []string{"1m", "10m", "1h", "12h"}

// key answers GET key.
func (p *Page) key(v *visit) error {
	d := &keyData{Form: actForm{TTL: "10m"}, Done: p.done(v, "key")}
	return p.showKey(v, v.URL.Query().Get("key"), http.StatusOK, d)
}

func (p *Page) showKey(v *visit, key string, status int, d *keyData) error {
	if fence.CheckKey(key) != nil || refusals.Reserved(key) || !p.may(v, server.Read, key) {
		return notThere
	}
	ctx, done, err := p.reading(v)
	if err != nil {
		return err
	}
	defer done()
	now, err := p.st.Now(ctx)
	if err != nil {
		return p.silent(v, err)
	}
	rec, err := p.st.Get(ctx, key)
	if err != nil {
		return p.silent(v, err)
	}
	if rec.IsZero() {
		return notThere
	}
	d.keyRow, d.Name = rowOf(rec, now), key
	d.Cause = glance.Causes[rec.Cause]
	d.Terms, d.Line = termsOf(rec, d.keyRow.Now)
	d.Acts = p.may(v, server.Operate, key)
	d.Form.Named, d.Form.TTLs = v.id.Name != "", ttls
	all, err := refusals.Read(ctx, p.st, key)
	if err := p.rest(v, err); err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r refusals.Refusal) bool { return r.Key != key })
	d.Refusals = refusalRows(all, d.keyRow.Now, maxRefusals)
	d.Marks = p.guards(ctx, v, rec, all, d.keyRow.Now)
	p.show(v, status, "key", text(key), d)
	return nil
}

// actOnKey answers POST key: an act by hand. It is a call of the API.
func (p *Page) actOnKey(v *visit) error {
	f := actForm{
		Verb: v.PostForm.Get("verb"), Note: strings.TrimSpace(v.PostForm.Get("note")), Owner: v.PostForm.Get("owner"),
		TTL: v.PostForm.Get("ttl"), Actor: cmp.Or(v.id.Name, strings.TrimSpace(v.PostForm.Get("actor"))),
	}
	key := v.PostForm.Get("key")
	if fence.CheckKey(key) != nil || !p.may(v, server.Read, key) {
		return notThere
	}
	q := tenure.Request{Secret: tenure.NewSecret(), Actor: f.Actor, Note: f.Note}
	refused := f.check()
	if ttl, err := time.ParseDuration(f.TTL); f.Verb != string(tenure.Revoke) {
		if q.TTL, q.Owner = ttl, f.Actor; err != nil {
			refused = &problem{http.StatusBadRequest, "No time", "Choose for how long."}
		}
		if f.Verb == string(tenure.Reserve) {
			q.Owner = f.Owner
		}
	}
	if refused == nil {
		_, refused = p.call(v, http.MethodPost, "/v1/leases/"+url.PathEscape(key)+"/"+f.Verb, wire.Request(q))
	}
	if refused == nil {
		http.Redirect(v.w, v.Request, p.doneURL(v, "key", f.Verb, url.Values{"key": {key}}), http.StatusSeeOther)
		return nil
	}
	return p.showKey(v, key, refused.Status, &keyData{Refused: refused, Form: f})
}

// check finds what the API would refuse in words about its own members.
func (f actForm) check() *problem {
	bad := func(why string) *problem { return &problem{http.StatusBadRequest, "Something is missing", why} }
	switch {
	case f.Verb != string(tenure.Takeover) && f.Verb != string(tenure.Reserve) && f.Verb != string(tenure.Revoke):
		return bad("This page knows no such act.")
	case f.Note == "":
		return bad("Say why: the note stays in the key's history.")
	case f.Actor == "":
		return bad("Say who you are: the name stays in the key's history.")
	case f.Verb == string(tenure.Reserve) && strings.TrimSpace(f.Owner) == "":
		return bad("Name the owner for whom to reserve the key.")
	}
	return nil
}

// termRow is a term in the history.
type termRow struct {
	tenure.Term
	Until time.Time // its end, or now
	How   string    // it ended, or its state
	Alive bool
	For   time.Duration
	Owned string // by whom
}

// timeline has the bars of a history, on a line of 1000 units.
type timeline struct {
	From, To time.Time
	Bars     []bar
}

// bar is one term on the line.
type bar struct {
	X, Width int
	Class    string
	Title    string
}

// termsOf returns the terms of a record, the newest first, and draws them.
func termsOf(rec tenure.Record, now time.Time) (rows []termRow, line timeline) {
	for i, term := range rec.History {
		row := termRow{Term: term, Until: term.Finished, How: strings.ReplaceAll(string(term.Ended), "_", " ")}
		if term.Ended == "" {
			row.How, row.Until = glance.StateOf(rec, now), now
			row.Alive = row.How == "held" || row.How == "reserved"
			if term.State != tenure.Free && !row.Alive {
				row.How, row.Until = "expired", rec.Deadline
			}
		}
		switch term.State {
		case tenure.Free:
			row.Owned, row.Until = "nobody: revoked", term.Acquired
			if i+1 < len(rec.History) {
				row.Until = rec.History[i+1].Acquired
			}
		case tenure.Reserved:
			row.Owned = "reserved for " + word(term.Owner)
		default:
			row.Owned = word(term.Owner)
		}
		row.For = max(row.Until.Sub(term.Acquired), 0)
		rows = append(rows, row)
	}
	line = drawn(rows, now)
	slices.Reverse(rows)
	return rows, line
}

// drawn draws terms, the oldest first. A short term is still visible.
func drawn(rows []termRow, now time.Time) (line timeline) {
	if len(rows) == 0 {
		return line
	}
	line.From, line.To = rows[0].Acquired, now
	whole := max(line.To.Sub(line.From), time.Millisecond).Seconds()
	at := func(t time.Time) int { return min(max(int(t.Sub(line.From).Seconds()/whole*1000), 0), 1000) }
	for _, row := range rows {
		class := strings.ReplaceAll(row.How, " ", "-")
		switch {
		case row.State == tenure.Free:
			continue
		case row.State == tenure.Reserved:
			class = "reserved"
		case row.Alive:
			class = "held"
		}
		x := min(at(row.Acquired), 994)
		line.Bars = append(line.Bars, bar{
			x, max(at(row.Until)-x, 6), class, row.Owned + ", " + glance.Short(row.For) + ", " + row.How,
		})
	}
	return line
}

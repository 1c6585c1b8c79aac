package drillcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/internal/svg"
)

// The picture's measures.
const (
	edge      = 16.0 // between the card and its content
	plotFrom  = 58.0 // names of lanes are left of it
	plotTo    = svg.Width - edge - 6
	barHeight = 24.0
	apart     = 22.0 // between the numbers in a lane, at least
	dense     = 12.0 // events of a kind in a lane that are closer are drawn once
)

// The most that a picture shows, however long the recording is.
const (
	maxLanes   = 4
	maxMoments = 12
)

// pausePicture draws the scene pause: the owners' terms, the content of the
// file, and what the sleeper's writes came to. It returns nil if the store
// remembers no owner.
func pausePicture(r *drill.Report) []byte {
	i := slices.IndexFunc(r.Scenes, func(s drill.Scene) bool { return s.Name == "pause" })
	if i < 0 || len(r.Scenes[i].Terms) == 0 {
		return nil
	}
	t := newTimeline(r.Scenes[i], r.Guarded)
	title := t.title()
	p := svg.New(title, t.describe(r.TTL))
	y := edge
	for _, line := range svg.Wrap(title, svg.Title, svg.Width-2*edge-8) { // bold is wider
		y += 20
		p.Bold(svg.Plain, svg.Title, edge, y, line)
	}
	t.arrange(y + 38)
	t.drawAxis(p)
	t.drawOwners(p)
	t.drawFile(p)
	t.drawWrites(p)
	y = t.drawKey(p, t.bottom+40)
	y = t.drawMoments(p, y+30)
	y += 4
	for _, line := range svg.Wrap(t.verdict(r.TTL), svg.Small, svg.Width-2*edge) {
		p.Text(svg.Faint, svg.Small, edge, y, line)
		y += 16
	}
	return p.Bytes(y + 2)
}

// timeline is a scene, prepared for drawing.
type timeline struct {
	scene   drill.Scene
	guarded bool
	from    time.Time
	span    time.Duration
	lanes   []*lane // of the owners, the oldest first
	fileY   float64
	bottom  float64
	names   map[fence.Token]string // the tokens, without their common digits
}

// lane is the line of one owner.
type lane struct {
	owner  string
	ink    svg.Ink
	terms  []drill.Term
	events []drill.Event
	y      float64
}

func newTimeline(s drill.Scene, guarded bool) *timeline {
	t := &timeline{scene: s, guarded: guarded, from: s.Terms[0].Acquired}
	to := t.from
	var tokens []fence.Token
	for _, term := range s.Terms {
		tokens = append(tokens, term.Token)
		to = later(to, term.Finished)
		if l := t.lane(term.Owner); l != nil {
			l.terms = append(l.terms, term)
		}
	}
	for _, e := range s.Events {
		to = later(to, e.At)
		if i := slices.IndexFunc(t.lanes, func(l *lane) bool { return l.owner == e.Owner }); i >= 0 {
			t.lanes[i].events = append(t.lanes[i].events, e)
		}
	}
	// The end of the story is its point, so leave some room after it.
	t.span = max(to.Sub(t.from), time.Millisecond) * 7 / 6
	t.names = shortTokens(tokens)
	return t
}

// lane finds the lane of an owner or adds it. It returns nil if there is no
// room for another.
func (t *timeline) lane(owner string) *lane {
	if i := slices.IndexFunc(t.lanes, func(l *lane) bool { return l.owner == owner }); i >= 0 {
		return t.lanes[i]
	}
	if len(t.lanes) == maxLanes {
		return nil
	}
	l := &lane{owner: owner, ink: svg.Two}
	if len(t.lanes) == 0 {
		l.ink = svg.One
	}
	t.lanes = append(t.lanes, l)
	return l
}

// arrange puts the first owner above the file and the others below it. So
// writes of the first two cross no other lane.
func (t *timeline) arrange(top float64) {
	t.lanes[0].y = top
	t.fileY = top + barHeight + 34
	y := t.fileY + barHeight
	for _, l := range t.lanes[1:] {
		y += 34
		l.y = y
		y += barHeight
	}
	t.bottom = y + 24 // the numbers of the last lane are below it
}

func (t *timeline) x(at time.Time) float64 {
	share := float64(at.Sub(t.from)) / float64(t.span)
	return plotFrom + min(max(share, 0), 1)*(plotTo-plotFrom)
}

func (t *timeline) isGood() bool {
	return !slices.ContainsFunc(t.scene.Steps, func(s drill.Step) bool { return s.Result != drill.OK })
}

func (t *timeline) count(k drill.EventKind) int {
	n := 0
	for _, e := range t.scene.Events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// title says in one sentence how it ended.
func (t *timeline) title() string {
	switch {
	case t.count(drill.Overwrote) > 0:
		return "A frozen worker wakes up: its write gets through"
	case t.isGood():
		return "A frozen worker wakes up: its write is refused"
	}
	return "A frozen worker: not all was as it should be"
}

// verdict is the last line.
func (t *timeline) verdict(ttl time.Duration) string {
	right := 0
	for _, s := range t.scene.Steps {
		if s.Result == drill.OK {
			right++
		}
	}
	fence := ""
	if !t.guarded {
		fence = " --unguarded"
	}
	return fmt.Sprintf("croft drill%s, leases of %s: %d of %d steps as they should be",
		fence, ttl, right, len(t.scene.Steps))
}

// describe tells the picture in words, with whole tokens.
func (t *timeline) describe(ttl time.Duration) string {
	var all strings.Builder
	for _, term := range t.scene.Terms[:min(len(t.scene.Terms), maxMoments)] {
		fmt.Fprintf(&all, "%s has token %d. ", svg.Clip(term.Owner, svg.Body, 200), term.Token)
	}
	for _, m := range t.moments() {
		fmt.Fprintf(&all, "%s: %s. ", t.clock(m.at), m.text)
	}
	return all.String() + t.verdict(ttl) + "."
}

// clock is the time since the first grant.
func (t *timeline) clock(at time.Time) string {
	return fmt.Sprintf("%.2f s", at.Sub(t.from).Seconds())
}

// shortTokens leaves out the digits that all tokens begin with, but keeps four.
func shortTokens(tokens []fence.Token) map[fence.Token]string {
	names := map[fence.Token]string{}
	first := strconv.FormatInt(int64(tokens[0]), 10)
	common := max(len(first)-4, 0)
	for _, token := range tokens {
		name := strconv.FormatInt(int64(token), 10)
		for len(name) != len(first) || name[:common] != first[:common] {
			if common == 0 {
				break
			}
			common--
		}
	}
	for _, token := range tokens {
		name := strconv.FormatInt(int64(token), 10)
		if common > 1 {
			name = "…" + name[common:]
		}
		names[token] = name
	}
	return names
}

package drillcmd

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/internal/svg"
)

// drawAxis draws the seconds, behind everything else.
func (t *timeline) drawAxis(p *svg.Picture) {
	step, unit, name := 10*time.Minute, time.Minute, " min"
	for _, tenths := range []int{1, 2, 5, 10, 20, 50, 100, 200, 300, 600, 1200, 3000} {
		if d := time.Duration(tenths) * 100 * time.Millisecond; t.span/d <= 6 {
			step = d
			break
		}
	}
	if step < time.Minute {
		unit, name = time.Second, " s"
	}
	for at := time.Duration(0); at <= t.span; at += step {
		x := t.x(t.from.Add(at))
		p.Line(svg.Pale, 1, "", x, t.lanes[0].y-8, x, t.bottom)
		label := strconv.FormatFloat(float64(at)/float64(unit), 'f', -1, 64) + name
		p.Middle(svg.Faint, svg.Small, x, t.bottom+15, label)
	}
}

// drawOwners draws a lane for every owner: a filled bar for its lease, hatched
// while it is frozen, and a dashed one while it is frozen without a lease.
func (t *timeline) drawOwners(p *svg.Picture) {
	for _, l := range t.lanes {
		middle := l.y + barHeight/2
		p.Bold(l.ink, svg.Body, edge, middle+5, svg.Clip(l.owner, svg.Body, plotFrom-edge-4))
		for _, x := range t.drawn(l, drill.Asked) {
			t.drawWaiting(p, l, x)
		}
		for _, term := range l.terms {
			t.drawTerm(p, l, term)
		}
		for _, x := range t.drawn(l, drill.Renewed) {
			p.Line(svg.Paper, 2, "", x, l.y+5, x, l.y+barHeight-5)
		}
		for _, x := range t.drawn(l, drill.Refused, drill.Bounced) {
			p.Cross(svg.Alarm, x, middle, 5)
		}
	}
	numbered := map[*lane]float64{}
	for i, m := range t.moments() {
		if m.lane == nil {
			continue
		}
		x, y := t.x(m.at), m.lane.y-15
		if m.lane != t.lanes[0] {
			y = m.lane.y + barHeight + 15
		}
		if last, any := numbered[m.lane]; any {
			x = max(x, last+apart)
		}
		if x > svg.Width-10 {
			continue // the list has it
		}
		numbered[m.lane] = x
		drawNumber(p, x, y, i+1)
	}
}

// drawTerm draws one term of an owner.
func (t *timeline) drawTerm(p *svg.Picture, l *lane, term drill.Term) {
	from, to := t.x(term.Acquired), t.x(term.Finished)
	p.Bar(l.ink, from, l.y, max(to-from, 2), barHeight)
	for _, gone := range term.Absent {
		end := plotTo
		if !gone.To.IsZero() {
			end = t.x(gone.To)
		}
		left := t.x(gone.From)
		if frozen := min(end, to); frozen > left {
			p.Bar(svg.Paper, left, l.y, frozen-left, barHeight)
			p.Hatched(l.ink, left, l.y, frozen-left, barHeight)
			label(p, l.ink, left, l.y, frozen-left, "frozen")
		}
		if left = max(left, to); end > left {
			p.Frame(l.ink, left, l.y, end-left, barHeight, "3 3")
			label(p, l.ink, left, l.y, end-left, "no lease")
		}
	}
}

// drawWaiting draws the time between a request and the grant.
func (t *timeline) drawWaiting(p *svg.Picture, l *lane, from float64) {
	for _, term := range l.terms {
		if to := t.x(term.Acquired); to > from {
			p.Line(l.ink, 1.5, "2 4", from, l.y+barHeight/2, to, l.y+barHeight/2)
			label(p, l.ink, from, l.y, to-from, "waits")
			return
		}
	}
}

// label writes a text into a bar, if there is room for it.
func label(p *svg.Picture, ink svg.Ink, x, y, width float64, text string) {
	room := svg.Measure(text, svg.Small) + 6
	if room > width-4 {
		return
	}
	p.Bar(svg.Paper, x+(width-room)/2, y+4, room, barHeight-8)
	p.Middle(ink, svg.Small, x+width/2, y+barHeight/2+4, text)
}

// drawWrites draws a line for every write from its owner's lane to the file. A
// refused one ends before the file.
func (t *timeline) drawWrites(p *svg.Picture) {
	for _, l := range t.lanes {
		start, end, back := l.y+barHeight, t.fileY, -5.0
		if l != t.lanes[0] {
			start, end, back = l.y, t.fileY+barHeight, 5.0
		}
		for _, x := range t.drawn(l, drill.Bounced) {
			p.Line(svg.Alarm, 2, "4 3", x, start, x, end+back)
			p.Line(svg.Alarm, 3, "", x-6, end+back, x+6, end+back)
		}
		for _, x := range t.drawn(l, drill.Wrote) {
			p.Line(l.ink, 2, "", x, start, x, end)
			p.Dot(l.ink, x, end, 4)
		}
		for _, x := range t.drawn(l, drill.Overwrote) {
			p.Line(svg.Alarm, 2, "", x, start, x, end)
			p.Dot(svg.Alarm, x, end, 4)
		}
	}
}

// drawn returns the positions of an owner's events of these kinds. It leaves
// out those that would be drawn over the one before.
func (t *timeline) drawn(l *lane, kinds ...drill.EventKind) []float64 {
	var all []float64
	for _, e := range l.events {
		x := t.x(e.At)
		if slices.Contains(kinds, e.Kind) && (len(all) == 0 || x-all[len(all)-1] >= dense) {
			all = append(all, x)
		}
	}
	return all
}

// drawFile draws whose result the file has, and the token of its mark.
func (t *timeline) drawFile(p *svg.Picture) {
	p.Bold(svg.Plain, svg.Body, edge, t.fileY+barHeight/2+5, "file")
	type content struct {
		from        float64
		lane        *lane
		ink         svg.Ink
		long, short string
	}
	var contents []content
	for _, e := range t.scene.Events {
		if e.Kind != drill.Wrote && e.Kind != drill.Overwrote {
			continue
		}
		for _, l := range t.lanes {
			if l.owner != e.Owner {
				continue
			}
			c := content{t.x(e.At), l, l.ink, "", "by " + svg.Clip(l.owner, svg.Small, 60)}
			if e.Kind == drill.Overwrote {
				c.ink, c.short = svg.Alarm, "old, "+c.short
			}
			c.long = c.short
			if t.guarded && len(l.terms) > 0 {
				c.long += ", token " + t.names[l.terms[0].Token]
			}
			n := len(contents)
			switch {
			case n > 0 && contents[n-1].lane == l && contents[n-1].ink == c.ink:
			case n > 1 && c.from-contents[n-2].from < 3:
				contents[n-1] = c // a bar so narrow cannot be seen
			default:
				contents = append(contents, c)
			}
		}
	}
	for i, c := range contents {
		to := plotTo
		if i+1 < len(contents) {
			to = contents[i+1].from
		}
		if to-c.from < 3 {
			p.Bar(c.ink, c.from-1, t.fileY, 3, barHeight) // too short for a frame
			continue
		}
		p.Bar(svg.Paper, c.from, t.fileY, to-c.from, barHeight)
		p.Frame(c.ink, c.from, t.fileY, to-c.from, barHeight, "")
		text := c.long
		if svg.Measure(text, svg.Small) > to-c.from-10 {
			text = c.short
		}
		label(p, c.ink, c.from, t.fileY, to-c.from, text)
	}
}

// drawKey explains the shapes. It returns the last base line.
func (t *timeline) drawKey(p *svg.Picture, y float64) float64 {
	x := edge
	items := []struct {
		text string
		draw func(x, y float64)
	}{
		{"lease", func(x, y float64) { p.Bar(svg.Faint, x, y-10, 18, 12) }},
		{"renewed", func(x, y float64) {
			p.Bar(svg.Faint, x, y-10, 18, 12)
			p.Line(svg.Paper, 2, "", x+9, y-8, x+9, y)
		}},
		{"frozen", func(x, y float64) { p.Hatched(svg.Faint, x, y-10, 18, 12) }},
		{"write", func(x, y float64) { p.Dot(svg.Faint, x+12, y-4, 4) }},
		{"refused", func(x, y float64) { p.Cross(svg.Alarm, x+12, y-4, 5) }},
	}
	for _, item := range items {
		width := 24 + svg.Measure(item.text, svg.Small)
		if x > edge && x+width > svg.Width-edge {
			x, y = edge, y+20
		}
		item.draw(x, y)
		p.Text(svg.Faint, svg.Small, x+24, y, item.text)
		x += width + 12
	}
	return y
}

// drawMoments lists the moments by their numbers. It returns the next base
// line.
func (t *timeline) drawMoments(p *svg.Picture, y float64) float64 {
	all, widest := t.moments(), 0.0
	for _, m := range all {
		widest = max(widest, svg.Measure(t.clock(m.at), svg.Body))
	}
	times := edge + 24 + widest // after the numbers
	texts := times + 10
	for i, m := range all {
		if m.lane != nil {
			drawNumber(p, edge+9, y-5, i+1)
		}
		p.Right(svg.Faint, svg.Body, times, y, t.clock(m.at))
		for _, line := range svg.Wrap(m.text, svg.Body, svg.Width-edge-texts) {
			p.Text(svg.Plain, svg.Body, texts, y, line)
			y += 19
		}
		y += 5
	}
	return y
}

// drawNumber draws the number of a moment.
func drawNumber(p *svg.Picture, x, y float64, n int) {
	p.Dot(svg.Plain, x, y, 9)
	p.Middle(svg.Paper, svg.Small, x, y+4, fmt.Sprint(n))
}

// Package svg draws the pictures in the documents: a card with text, bars and
// lines, for light and dark pages.
//
// A picture is one file. It has no scripts, no links and no fonts of its own.
// The card is opaque, so it can be read on any page, even if the page and the
// reader's system disagree about dark mode. The same calls give the same bytes.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Width is the width of every picture. On a phone, text of size Body is then
// still ten pixels high.
const Width = 480

// The sizes of text.
const (
	Title = 16
	Body  = 14
	Small = 12
)

// Ink is a colour by its meaning. It differs between light and dark pages.
type Ink string

// The inks.
const (
	Paper Ink = "paper" // the card
	Plain Ink = "plain" // text
	Faint Ink = "faint" // text and lines that help
	Pale  Ink = "pale"  // areas that help
	One   Ink = "one"   // the first of two things that are told apart
	Two   Ink = "two"   // the second
	Alarm Ink = "alarm"
)

// colours are the light and the dark colour of each ink.
var colours = []struct {
	ink         Ink
	light, dark string
}{
	{Paper, "#ffffff", "#0d1117"},
	{Plain, "#1f2328", "#f0f6fc"},
	{Faint, "#59636e", "#9198a1"},
	{Pale, "#d1d9e0", "#3d444d"},
	{One, "#0969da", "#4493f8"},
	{Two, "#1a7f37", "#3fb950"},
	{Alarm, "#cf222e", "#f85149"},
}

// Picture is a picture that is being drawn.
type Picture struct {
	title, desc string
	body        strings.Builder
	hatched     []Ink
}

// New begins a picture. Screen readers read the title and the description.
func New(title, desc string) *Picture { return &Picture{title: title, desc: desc} }

// Text writes one line of text that begins at x, with its base line at y.
func (p *Picture) Text(ink Ink, size int, x, y float64, text string) {
	p.text(ink, size, x, y, "", text)
}

// Bold writes like Text, in bold.
func (p *Picture) Bold(ink Ink, size int, x, y float64, text string) {
	p.text(ink, size, x, y, ` font-weight="600"`, text)
}

// Middle writes like Text, centred at x.
func (p *Picture) Middle(ink Ink, size int, x, y float64, text string) {
	p.text(ink, size, x, y, ` text-anchor="middle"`, text)
}

// Right writes like Text, but the line ends at x.
func (p *Picture) Right(ink Ink, size int, x, y float64, text string) {
	p.text(ink, size, x, y, ` text-anchor="end"`, text)
}

func (p *Picture) text(ink Ink, size int, x, y float64, more, text string) {
	fmt.Fprintf(&p.body, `<text class="%s" x="%s" y="%s" font-size="%d"%s>%s</text>`+"\n",
		ink, number(x), number(y), size, more, escape(text))
}

// Bar fills a bar.
func (p *Picture) Bar(ink Ink, x, y, width, height float64) {
	fmt.Fprintf(&p.body, `<rect class="%s" %s/>`+"\n", ink, box(x, y, width, height))
}

// Hatched draws a bar with a border and diagonal lines.
func (p *Picture) Hatched(ink Ink, x, y, width, height float64) {
	if !slices.Contains(p.hatched, ink) {
		p.hatched = append(p.hatched, ink)
	}
	fmt.Fprintf(&p.body, `<rect fill="url(#hatch-%s)" %s/>`+"\n", ink, box(x, y, width, height))
	p.Frame(ink, x, y, width, height, "")
}

// Frame draws the border of a bar. dash is a pattern such as "3 3", or empty.
func (p *Picture) Frame(ink Ink, x, y, width, height float64, dash string) {
	fmt.Fprintf(&p.body, `<rect class="%s-line" stroke-width="1.5"%s %s/>`+"\n",
		ink, dashes(dash), box(x+.75, y+.75, max(width-1.5, 0), max(height-1.5, 0)))
}

// Line draws a line through points, which are pairs of x and y.
func (p *Picture) Line(ink Ink, width float64, dash string, points ...float64) {
	var path strings.Builder
	for i := 0; i+1 < len(points); i += 2 {
		step := 'L'
		if i == 0 {
			step = 'M'
		}
		fmt.Fprintf(&path, "%c%s %s", step, number(points[i]), number(points[i+1]))
	}
	fmt.Fprintf(&p.body, `<path class="%s-line" stroke-width="%s"%s d="%s"/>`+"\n",
		ink, number(width), dashes(dash), &path)
}

// Cross draws a cross around a point: something was refused.
func (p *Picture) Cross(ink Ink, x, y, radius float64) {
	p.Line(ink, 2.5, "", x-radius, y-radius, x+radius, y+radius)
	p.Line(ink, 2.5, "", x-radius, y+radius, x+radius, y-radius)
}

// Dot fills a circle.
func (p *Picture) Dot(ink Ink, x, y, radius float64) {
	fmt.Fprintf(&p.body, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`+"\n", ink, number(x), number(y), number(radius))
}

// Bytes returns the file, with a card of this height.
func (p *Picture) Bytes(height float64) []byte {
	var out bytes.Buffer
	h := number(height)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" viewBox="0 0 %d %s" `+
		`role="img" aria-labelledby="title desc">`+"\n", Width, h, Width, h)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n", escape(p.title), escape(p.desc))
	out.WriteString("<style>\ntext{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\"," +
		"Helvetica,Arial,sans-serif;font-variant-numeric:tabular-nums}\n")
	for _, c := range colours {
		out.WriteString(rule(c.ink, c.light))
	}
	out.WriteString("@media (prefers-color-scheme:dark){\n")
	for _, c := range colours {
		out.WriteString(rule(c.ink, c.dark))
	}
	out.WriteString("}\n</style>\n")
	for _, ink := range p.hatched {
		fmt.Fprintf(&out, `<pattern id="hatch-%s" width="7" height="7" patternUnits="userSpaceOnUse" `+
			`patternTransform="rotate(45)"><rect class="paper" width="7" height="7"/>`+
			`<path class="%s-line" stroke-width="1.5" stroke-opacity=".55" d="M0 0V7"/></pattern>`+"\n", ink, ink)
	}
	fmt.Fprintf(&out, `<rect class="paper" width="%d" height="%s" rx="8"/>`+"\n", Width, h)
	fmt.Fprintf(&out, `<rect class="pale-line" x=".5" y=".5" width="%d" height="%s" rx="8"/>`+"\n",
		Width-1, number(height-1))
	out.WriteString(p.body.String())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func rule(ink Ink, colour string) string {
	return fmt.Sprintf(".%s{fill:%s}.%s-line{fill:none;stroke:%s}\n", ink, colour, ink, colour)
}

func box(x, y, width, height float64) string {
	return fmt.Sprintf(`x="%s" y="%s" width="%s" height="%s" rx="2"`,
		number(x), number(y), number(width), number(height))
}

func dashes(pattern string) string {
	if pattern == "" {
		return ""
	}
	return ` stroke-dasharray="` + pattern + `"`
}

// number writes a length with one decimal at most.
func number(v float64) string {
	text := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(strings.Replace(text, "-0.0", "0.0", 1), ".0")
}

// escape makes any text fit for XML. Characters that cannot be seen, such as
// those that turn the direction of writing, become a replacement character.
func escape(text string) string {
	seen := strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(seen)) // a strings.Builder takes everything
	return out.String()
}

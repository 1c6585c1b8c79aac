package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/croft-dev/croft/internal/glance"
	"github.com/croft-dev/croft/store"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"text": text, "word": word, "target": func(s string) string { return text(store.Redact(s)) },
	"short": glance.Short, "iso": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"since": func(now, t time.Time) moment { return moment{t, glance.Short(max(now.Sub(t), 0))} },
	"until": func(now, t time.Time) moment { return moment{t, glance.Short(max(t.Sub(now), 0))} },
	"plain": func(s fmt.Stringer) string { return s.String() },
	"under": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
	"body":  body,
}

// moment is a time with its distance from now, which page.js keeps up to date.
type moment struct {
	At   time.Time
	Text string
}

// Ms is the time in milliseconds since 1970.
func (m moment) Ms() int64 { return m.At.UnixMilli() }

// maxText bounds a note or a name on the page, and maxBody a payload.
const (
	maxText = 2048
	maxBody = 4096
)

// text shows text of others on one line. Characters that cannot be printed
// become escapes.
func text(s string) string { return clip(strings.ReplaceAll(glance.Lines(s), "\n", `\n`), maxText) }

// word is text for a name. A name that is not there is a dash.
func word(s string) string {
	if s == "" {
		return "–"
	}
	return text(s)
}

// body shows bytes of others: text with its lines, or how many bytes there are.
func body(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("%d bytes that are no text", len(b))
	}
	if len(b) > maxBody {
		return fmt.Sprintf("%s\n… %d bytes in all", glance.Lines(strings.ToValidUTF8(string(b[:maxBody]), "")), len(b))
	}
	return glance.Lines(string(b))
}

// clip cuts text after so many bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

package cli

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/croft-dev/croft/internal/glance"
)

// The text that croft shows comes from stores that others write to. It must not
// move the cursor, or hide or reverse the text around it.

// Word returns text as one word of a table. It quotes text with spaces, quotes
// or unprintable characters. Empty text becomes a dash.
func Word(s string) string {
	if s == "" {
		return "-"
	}
	if s == "-" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '"' || unsafe(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Pasted returns text as one word of a command that a user may paste into a
// shell. The shell runs nothing in it. A name with unprintable characters does
// not survive.
func Pasted(s string) string {
	if Completable(s) {
		return s
	}
	if strings.ContainsFunc(s, unsafe) {
		s = strconv.Quote(s)
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Line returns text on one line. It quotes text with unprintable characters.
func Line(s string) string {
	if strings.ContainsFunc(s, unsafe) {
		return strconv.Quote(s)
	}
	return s
}

// Lines returns a message with its line breaks. It escapes other unprintable
// characters.
func Lines(s string) string { return glance.Lines(s) }

func unsafe(r rune) bool { return glance.Unprintable(r) }

// Width is the number of columns that a terminal uses for s. Combining marks
// take none, East Asian characters and emoji take two.
func Width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case r >= 0x1100 && wide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

func wide(r rune) bool {
	for _, block := range [][2]rune{
		{0x1100, 0x115f},
		{0x2e80, 0x303e},
		{0x3041, 0xa4cf},
		{0xac00, 0xd7a3},
		{0xf900, 0xfaff},
		{0xfe30, 0xfe6f},
		{0xff01, 0xff60},
		{0xffe0, 0xffe6},
		{0x1f300, 0x1f64f},
		{0x1f680, 0x1f6ff},
		{0x1f900, 0x1faff},
		{0x20000, 0x3fffd},
	} {
		if r >= block[0] && r <= block[1] {
			return true
		}
	}
	return false
}

// Cut shortens s to at most columns, and ends it with an ellipsis.
func Cut(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		w := Width(string(r))
		if n+w > columns-1 {
			return s[:i] + "…"
		}
		n += w
	}
	return s
}

package main

import (
	"strconv"
	"strings"
	"unicode"
)

// What is shown comes from stores that others write to. None of it may move the cursor, hide or reverse what stands around it.

// word is text as one word of a table: quoted if it has spaces, quotes or anything unprintable, a dash if it is empty.
func word(s string) string {
	if s == "" {
		return "-"
	}
	if s == "-" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == '"' || unsafe(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// line is text on one line of its own: quoted only if something in it is unprintable.
func line(s string) string {
	if strings.ContainsFunc(s, unsafe) {
		return strconv.Quote(s)
	}
	return s
}

// lines is a message: line breaks stay, anything else unprintable is escaped.
func lines(s string) string {
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString("\n")
		case unsafe(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unsafe(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// width is how many columns a terminal gives to s: most characters one, marks none, East Asian ones and emoji two.
func width(s string) int {
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

// cut shortens s to at most columns, with an ellipsis where something is missing.
func cut(s string, columns int) string {
	if width(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		w := width(string(r))
		if n+w > columns-1 {
			return s[:i] + "…"
		}
		n += w
	}
	return s
}

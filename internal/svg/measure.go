package svg

import "strings"

// Measure estimates how wide a text is. Readers have different fonts, so this
// is the width in a wide one.
func Measure(text string, size int) float64 {
	ems := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune(" .,:;'|!/ijlI", r):
			ems += .36
		case strings.ContainsRune("()[]ft", r):
			ems += .42
		case strings.ContainsRune("mwMW…", r), r > 0x2fff: // also scripts with square characters
			ems += 1.02
		case r >= 'A' && r <= 'Z':
			ems += .74
		default:
			ems += .64
		}
	}
	return ems * float64(size)
}

// Clip shortens a text that needs more room.
func Clip(text string, size int, room float64) string {
	if Measure(text, size) <= room {
		return text
	}
	runes := []rune(text)
	for len(runes) > 1 && Measure(string(runes)+"…", size) > room {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// Wrap breaks a text into lines at its spaces. It clips words that need more
// room.
func Wrap(text string, size int, room float64) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = Clip(word, size, room)
		switch {
		case line == "":
			line = word
		case Measure(line+" "+word, size) <= room:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

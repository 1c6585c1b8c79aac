// Package excerpt shortens texts that others have written, such as errors,
// until a record accepts them.
package excerpt

import "strings"

// Of returns the beginning of a text, at most this many bytes long. The result
// is valid UTF-8 and has no NUL: a question mark stands for bytes that are not.
func Of(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

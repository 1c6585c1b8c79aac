package guard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/croft-dev/croft/fence"
)

// The longest actor and note of a Rekey, in bytes.
const (
	MaxActor = 256
	MaxNote  = 1024
)

// CheckRekey returns an error if the arguments of a Rekey are not allowed.
// Every guard calls it before it touches anything. An operator's act needs a
// key, an actor and a note that says why. Actor and note are one line each.
func CheckRekey(key, actor, note string) error {
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	return checkByHand("rekey", actor, note)
}

// CheckReset is the same for a Reset.
func CheckReset(actor, note string) error { return checkByHand("reset", actor, note) }

func checkByHand(act, actor, note string) error {
	for _, field := range []struct {
		name, text string
		most       int
	}{{"actor", actor, MaxActor}, {"note", note, MaxNote}} {
		switch {
		case strings.TrimSpace(field.text) == "":
			return fmt.Errorf("%w %s: the %s is empty; it needs an actor and a note that says why",
				fence.ErrInvalid, act, field.name)
		case len(field.text) > field.most:
			return fmt.Errorf("%w %s: %d bytes long, at most %d are allowed",
				fence.ErrInvalid, field.name, len(field.text), field.most)
		case !utf8.ValidString(field.text):
			return fmt.Errorf("%w %s %q: it is not valid UTF-8", fence.ErrInvalid, field.name, field.text)
		case strings.IndexFunc(field.text, unicode.IsControl) >= 0:
			return fmt.Errorf("%w %s %q: it has a control character; keep it on one line",
				fence.ErrInvalid, field.name, field.text)
		}
	}
	return nil
}

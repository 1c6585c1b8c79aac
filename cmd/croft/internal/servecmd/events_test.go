package servecmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// TestAnActWithoutAnAnswerIsNotToldAsRefused: it may have been done.
func TestAnActWithoutAnAnswerIsNotToldAsRefused(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"done": nil, "outcome unknown": store.Unknown(errors.New("no answer")), "refused": errors.New("not allowed"),
	} {
		var out bytes.Buffer
		a := &app{&cli.App{Stderr: &out}}
		a.tell()(server.Event{Kind: server.Acted, Act: tenure.Revoke, Key: "a/b", Actor: "opal", Note: "why", Err: err})
		if !strings.Contains(out.String(), "(why): "+want) {
			t.Errorf("%v: the log says %q, want %s", err, out.String(), want)
		}
	}
}

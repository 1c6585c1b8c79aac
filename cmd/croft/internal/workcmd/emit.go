package workcmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/work"
)

// effectLine is an effect as a worker writes it: one JSON object per line.
type effectLine struct {
	Name       string          `json:"name"`
	To         string          `json:"to,omitempty"`
	Body       json.RawMessage `json:"body,omitempty"`
	Base64     []byte          `json:"body_base64,omitempty"`
	AtMostOnce bool            `json:"at_most_once,omitempty"`
}

// longestEffect is the longest line of an effect. JSON may escape every byte of
// the body with six characters.
const longestEffect = 6*work.MaxBody + 4096

// mostOfEffects is how many bytes of effects are read.
const mostOfEffects = (work.MaxEffects + 1) * longestEffect

// readEffects reads the file that --effects names.
func readEffects(path string) ([]work.Emission, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cli.Invalid("effects: %v", err)
	}
	defer f.Close()
	return parseEffects(f)
}

// parseEffects reads effects, one per line. It reads no more input than effects
// can have. One bad line makes all of them bad, because half of the effects
// must not happen.
func parseEffects(r io.Reader) ([]work.Emission, error) {
	var all []work.Emission
	left := &io.LimitedReader{R: r, N: mostOfEffects}
	scan := bufio.NewScanner(left)
	scan.Buffer(nil, longestEffect)
	n := 1
	for ; scan.Scan(); n++ {
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		e, err := parseEffect(text)
		if err != nil {
			return nil, cli.Invalid("effects: line %d: %v; write one JSON object per line, with a name", n, err)
		}
		if all = append(all, e); len(all) > work.MaxEffects {
			return nil,
				cli.Invalid("effects: line %d: these are more than %d; emit fewer, or one that stands for them", n,
					work.MaxEffects)
		}
	}
	if left.N == 0 {
		return nil,
			cli.Invalid("effects: they have %d bytes or more; emit fewer, or one that stands for them", mostOfEffects)
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return nil, cli.Invalid("effects: line %d: it is longer than an effect can be; a body has at most %d bytes", n,
			work.MaxBody)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("effects: %w", err)
	}
	check := work.Request{
		Verb: work.Complete, ID: "00000000000000000000000000000000", Token: 1,
		Secret: "00000000000000000000000000000000", Effects: all,
	}
	return all, check.Check()
}

func parseEffect(text []byte) (work.Emission, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var l effectLine
	if err := dec.Decode(&l); err != nil {
		return work.Emission{}, err
	}
	if dec.More() {
		return work.Emission{}, fmt.Errorf("something follows the object")
	}
	e := work.Emission{Name: l.Name, To: l.To, Body: l.Body, AtMostOnce: l.AtMostOnce}
	var plain string
	switch {
	case l.Name == "":
		return e, fmt.Errorf("the effect has no name")
	case len(l.Body) > 0 && len(l.Base64) > 0:
		return e, fmt.Errorf("it has both body and body_base64")
	case len(l.Base64) > 0:
		e.Body = l.Base64
	case json.Unmarshal(l.Body, &plain) == nil && string(l.Body) != "null":
		e.Body = []byte(plain)
	}
	if len(e.Body) > work.MaxBody {
		return e, fmt.Errorf("the body has %d bytes, at most %d are allowed", len(e.Body), work.MaxBody)
	}
	return e, nil
}

func (a *app) workEmitCommand() *cobra.Command {
	in := cli.Content{What: "body", Most: work.MaxBody}
	var l effectLine
	c := &cobra.Command{
		Use:   "emit NAME [BODY|-]",
		Short: "Inside croft work run: add an effect to the completion",
		Long: `Add an effect to the completion of the running attempt. Croft writes it to the
file that CROFT_EFFECTS names. The effect happens if the attempt completes the
item, and only then. "croft work dispatch" delivers it.

The name tells the effects of one item apart, and is a part of their identity. A
second attempt must use the same name for the same effect, so that the receiver
can tell the repetition by its Idempotency-Key.`,
		Example: `  croft work emit published '{"url": "https://example.org/17"}'
  croft work emit mail/customer --to mail --from mail.txt
  croft work emit charge --at-most-once '{"order": 4711}'`,
		Args: cli.Takes("NAME", "[BODY]"),
		RunE: func(c *cobra.Command, args []string) error {
			path := os.Getenv(cli.EnvEffects)
			if path == "" {
				return &cli.UsageError{
					Message: "nowhere to put the effect: " + cli.EnvEffects + " is not set",
					Hint:    "run it inside croft work run, or give complete --effects FILE",
				}
			}
			body, _, err := in.Read(a.App, args[1:])
			if err != nil {
				return err
			}
			l.Name, l.Base64 = args[0], body
			check := work.Request{
				Verb: work.Complete, ID: "00000000000000000000000000000000", Token: 1,
				Secret:  "00000000000000000000000000000000",
				Effects: []work.Emission{{Name: l.Name, To: l.To, Body: body}},
			}
			if err := check.Check(); err != nil {
				return err
			}
			text, err := json.Marshal(l)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			// One write, so that effects emitted at the same time do not mix.
			if _, err = f.Write(append(text, '\n')); err != nil {
				_ = f.Close()
				return err
			}
			return f.Close()
		},
	}
	in.Flag(c)
	c.Flags().StringVar(&l.To, "to", "", "`destination`, as the dispatcher knows it (default: the name)")
	c.Flags().BoolVar(&l.AtMostOnce, "at-most-once", false,
		"the receiver cannot tell repetitions: if nobody knows whether it arrived, do not send it again")
	return c
}

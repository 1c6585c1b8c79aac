package proxycmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
)

func (a *app) proxyOpenCommand() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:   "open RESOURCE --note WHY",
		Short: "Open a resource that a proxy has closed",
		Long: `Open a resource that a proxy has closed because a write may still be under way
to the service. Do so when you know that none is: the service has been
restarted, or its log shows how the write ended. A proxy cannot know that, so it
waits.

The store keeps who opened the resource and why; "croft history
croft-proxy/RESOURCE" shows it. Exit code 2 says that there was nothing to open.`,
		Example: `  croft show croft-proxy/orders/42                            # closed since when, and why
  croft proxy open orders/42 --note "the service was restarted"`,
		Args: cli.Takes("RESOURCE"),
		ValidArgsFunction: func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			keys, directive := a.CompleteKey(c, args, httpfence.DefaultLeasePrefix+begun)
			for i := range keys {
				keys[i] = strings.TrimPrefix(keys[i], httpfence.DefaultLeasePrefix)
			}
			return keys, directive
		},
		RunE: func(c *cobra.Command, args []string) error { return a.proxyOpen(c.Context(), args[0], note) },
	}
	cli.NoteFlag(c, &note)
	return c
}

// openView is an opened resource in JSON.
type openView struct {
	Resource string `json:"resource"`
	Key      string `json:"key"`
	Opened   bool   `json:"opened"`
}

func (a *app) proxyOpen(ctx context.Context, resource, note string) error {
	key := httpfence.DefaultLeasePrefix + resource
	if err := fence.CheckKey(key); err != nil {
		return err
	}
	client, end, err := a.Client(ctx)
	if err != nil {
		return err
	}
	defer end()
	stop := a.AskOnTerminal()
	err = httpfence.Reopen(ctx, client, "", resource, croft.ByHand{Actor: a.Owner, Note: note})
	stop()
	if errors.Is(err, httpfence.ErrOpen) {
		return cli.Invalid("resource %s: %w; nothing was changed", cli.Word(resource), err)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		a.Print(openView{resource, key, true})
		return nil
	}
	fmt.Fprintf(a.Stdout, "opened %s\n", cli.Word(resource))
	return nil
}

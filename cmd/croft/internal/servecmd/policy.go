package servecmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/server"
)

func (a *app) checkPolicyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check-policy FILE [NAME VERB KEY]",
		Short: "Check a policy, and explain what it decides",
		Long: `Check the file of --policy. With NAME, VERB and KEY, say whether that identity
may do that, and by which line of the file. VERB is read, acquire, work, add or
operate. For a queue of work items KEY is its name and a slash. Exit code 1 says
that it may not.

A line of the file is empty, a comment that begins with #, or one of these:

  token NAME sha256:HEX            who has the token with this SHA-256 is NAME
  certificate NAME dns:HOST        who has a client certificate for this name
                                   is NAME; also email:, uri: and ip:
  oidc NAME ISSUER AUDIENCE CLAIM VALUE
                                   who has a token that the OpenID Connect
                                   ISSUER has signed for AUDIENCE, with this
                                   VALUE of CLAIM, is NAME
  NAME may VERBS on KEYS           a rule

VERBS are some of read, acquire, work (renew, report, checkpoint, release), add
and operate (take over, reserve, revoke), with commas between them. Each includes
read. KEYS is a key, a prefix that ends with a slash, or * for all. NAME may be
* for everybody who has a name. What no rule allows is forbidden, and a key that
NAME may not read does not exist for it.

A rule on the prefix thumbs/ is also about the work items of the queue thumbs,
and of queues below it: add them, acquire (claim) them, work on them, or operate
(cancel, reassign, take over, replay). Whoever delivers effects or prunes must
operate on *.

To make a token and its line:
  head -c 32 /dev/urandom | base64 | tr -d '\n' > token
  echo "token NAME sha256:$(sha256sum < token | cut -d' ' -f1)" >> policy`,
		Example: `  croft serve check-policy policy
  croft serve check-policy policy ann acquire reports/daily
  croft serve check-policy policy ann add thumbs/`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 || len(args) == 3 {
				return fmt.Errorf("NAME, VERB and KEY belong together")
			}
			return cli.Takes("FILE", "[NAME]", "[VERB]", "[KEY]")(c, args)
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.checkPolicy(args) },
	}
}

// decisionView is a decision in JSON.
type decisionView struct {
	Name    string `json:"name"`
	Verb    string `json:"verb"`
	Key     string `json:"key"`
	Allowed bool   `json:"allowed"`
	Line    int    `json:"line,omitempty"`
	Rule    string `json:"rule,omitempty"`
}

func (a *app) checkPolicy(args []string) error {
	policy, err := readPolicy(args[0])
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if !a.JSON {
			fmt.Fprintf(a.Stdout, "%s: the policy can be used\n", cli.Word(args[0]))
		}
		return nil
	}
	name, verb, key := args[1], server.Verb(args[2]), args[3]
	verbs := []server.Verb{server.Read, server.Acquire, server.Work, server.Add, server.Operate}
	if !slices.Contains(verbs, verb) {
		return cli.Invalid("verb %q: write read, acquire, work, add or operate", args[2])
	}
	if err := fence.CheckKey(strings.TrimSuffix(key, "/")); err != nil {
		return err
	}
	d := policy.Explain(name, verb, key)
	if a.JSON {
		a.Print(decisionView{name, string(verb), key, d.Allowed, d.Line, d.Rule})
	} else {
		why := "no rule allows it"
		switch {
		case d.Allowed:
			why = fmt.Sprintf("line %d: %s", d.Line, cli.Line(d.Rule))
		case !d.Known:
			why = "no token, certificate or claim has this name"
		}
		fmt.Fprintf(a.Stdout, "%s: %s\n", map[bool]string{true: "allowed", false: "forbidden"}[d.Allowed], why)
	}
	if !d.Allowed {
		return cli.ExitError(cli.ExitFailed)
	}
	return nil
}

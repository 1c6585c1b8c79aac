package mcpcmd

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/croft-dev/croft/boundary/mcp"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/internal/supervise"
)

// start runs the server. It does not get the lease, which holds a secret: the
// stamp in its environment is enough for writes of its own. It gets the
// credential in its environment, because every user can read its arguments.
func start(ctx context.Context, command []string, credential mcp.Credential) (mcp.Upstream, error) {
	var none mcp.Upstream
	in, toServer, err := os.Pipe()
	if err != nil {
		return none, err
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		_, _ = in.Close(), toServer.Close()
		return none, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == cli.EnvLease || name == credential.Name
	})
	if credential.Name != "" {
		env = append(env, credential.Name+"="+credential.Value)
	}
	child, err := supervise.Start(ctx, command, &supervise.Options{
		Env: env, Stdin: in, Stdout: out, Stderr: os.Stderr, Aside: true,
	})
	_, _ = in.Close(), out.Close() // the server has these ends now
	if err != nil {
		_, _ = toServer.Close(), fromServer.Close()
		return none, cli.Invalid("the server: %v", err)
	}
	return mcp.Upstream{In: toServer, Out: fromServer, Kill: child.Kill, AllowFor: child.AllowFor}, nil
}

package workcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/work"
	"github.com/croft-dev/croft/work/steward"
)

// destinationFlags are the flags about the destinations of a dispatcher.
type destinationFlags struct {
	webhooks, commands []string
	secretFiles        []string // FILE, or NAME=FILE
	file               string
	unsigned           bool
}

// destination is one entry of the file of destinations: a URL or a command.
type destination struct {
	URL        string            `json:"url"`
	SecretFile string            `json:"secret_file"`
	SecretEnv  string            `json:"secret_env"`
	Unsigned   bool              `json:"unsigned"`
	Header     map[string]string `json:"header"`
	Command    []string          `json:"command"`
	Dir        string            `json:"dir"`
}

// open makes a deliverer for every destination.
func (f *destinationFlags) open() (map[string]steward.Deliverer, error) {
	to := map[string]steward.Deliverer{}
	add := func(name string, d steward.Deliverer) error {
		if _, twice := to[name]; twice || name == "" {
			return cli.Invalid("destination %q: it is empty or named twice", name)
		}
		to[name] = d
		return nil
	}
	secretFile, err := f.secretFile()
	if err != nil {
		return nil, err
	}
	defer forgetSecrets(cli.EnvWebhookSecret)
	for _, flag := range f.webhooks {
		name, target, ok := strings.Cut(flag, "=")
		// This is a URL without a name. Do not print it: its path and query may
		// be secret.
		if !ok || strings.Contains(name, "://") {
			return nil, cli.Invalid("--webhook: one has no name; write NAME=URL")
		}
		d, err := (&destination{
			URL: target, SecretFile: secretFile(name), SecretEnv: cli.EnvWebhookSecret,
			Unsigned: f.unsigned,
		}).open(name, "")
		if err != nil {
			return nil, err
		}
		if err := add(name, d); err != nil {
			return nil, err
		}
	}
	for _, flag := range f.commands {
		name, line, ok := strings.Cut(flag, "=")
		if !ok || strings.TrimSpace(line) == "" {
			return nil, cli.Invalid("--exec %q: write NAME=COMMAND", flag)
		}
		shell := []string{"sh", "-c", line}
		if runtime.GOOS == "windows" {
			shell = []string{"cmd", "/C", line}
		}
		if err := add(name, steward.Command{Args: shell}); err != nil {
			return nil, err
		}
	}
	if f.file != "" {
		all, err := readDestinations(f.file)
		if err != nil {
			return nil, err
		}
		var secrets []string
		for _, each := range all {
			secrets = append(secrets, each.SecretEnv)
		}
		defer forgetSecrets(secrets...)
		for name, each := range all {
			d, err := each.open(name, filepath.Dir(f.file))
			if err != nil {
				return nil, err
			}
			if err := add(name, d); err != nil {
				return nil, err
			}
		}
	}
	if len(to) == 0 {
		return nil, &cli.UsageError{
			Message: "no destination given",
			Hint:    "name at least one: --webhook NAME=URL, --exec NAME=COMMAND, or --destinations FILE",
		}
	}
	return to, nil
}

// secretFile returns a function that finds the file with the secret of a
// --webhook.
func (f *destinationFlags) secretFile() (of func(name string) string, err error) {
	files := map[string]string{}
	for _, flag := range f.secretFiles {
		name, path, named := strings.Cut(flag, "=")
		if !named || !slices.ContainsFunc(f.webhooks, func(w string) bool { return strings.HasPrefix(w, name+"=") }) {
			name, path = "", flag
		}
		if _, twice := files[name]; twice {
			return nil, cli.Invalid("--secret-file %q: there is one already; write NAME=FILE for each --webhook", flag)
		}
		files[name] = path
	}
	return func(name string) string { return cmp.Or(files[name], files[""]) }, nil
}

// forgetSecrets removes secrets from the environment, so that commands do not
// inherit them. A command with a secret could sign requests in the dispatcher's
// name.
func forgetSecrets(variables ...string) {
	for _, variable := range variables {
		if variable != "" {
			_ = os.Unsetenv(variable)
		}
	}
}

func readDestinations(path string) (map[string]*destination, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Invalid("--destinations: %v", err)
	}
	all := map[string]*destination{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, cli.Invalid("--destinations %s: %v; write an object with one entry per destination, as croft work "+
			"dispatch --help shows", cli.Word(path), err)
	}
	for name, d := range all {
		if d == nil {
			return nil, cli.Invalid("--destinations %s: %q is null; give it a url or a command", cli.Word(path), name)
		}
	}
	return all, nil
}

// open makes the deliverer of one destination. dir is the folder that relative
// paths start from.
func (d *destination) open(name, dir string) (steward.Deliverer, error) {
	if (d.URL == "") == (len(d.Command) == 0) {
		return nil, cli.Invalid("destination %q: it needs either a url or a command", name)
	}
	if len(d.Command) > 0 {
		return steward.Command{Args: d.Command, Dir: beside(dir, d.Dir)}, nil
	}
	u, err := url.Parse(d.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, cli.Invalid("destination %q: %q is no http or https URL", name, store.Redact(d.URL))
	}
	hook := steward.Webhook{URL: d.URL, Header: http.Header{}}
	for key, value := range d.Header {
		hook.Header.Set(key, value)
	}
	var text string
	switch {
	case d.SecretFile != "":
		data, err := os.ReadFile(beside(dir, d.SecretFile))
		if err != nil {
			return nil, cli.Invalid("secret of destination %q: %v", name, err)
		}
		text = string(data)
	case d.SecretEnv != "":
		text = os.Getenv(d.SecretEnv)
	}
	for secret := range strings.Lines(text) { // several while a secret is being replaced
		if secret = strings.TrimSpace(secret); secret != "" {
			hook.Secrets = append(hook.Secrets, []byte(secret))
		}
	}
	if len(hook.Secrets) == 0 && !d.Unsigned {
		return nil,
			&cli.UsageError{
				Message: "destination " + cli.Word(name) + ": there is no secret to sign its requests with",
				Hint: "give --secret-file FILE (secret_file in the file of destinations), set " + cli.EnvWebhookSecret +
					", or say --unsigned",
			}
	}
	return hook, nil
}

// effectCommand delivers effects by a command that can reach the ledger, like
// the command of a worker.
type effectCommand struct {
	steward.Command
	ledger    string
	passStore bool
}

// Deliver runs the command.
func (c effectCommand) Deliver(ctx context.Context, e work.Effect) error {
	dir, err := scratch()
	if err != nil {
		return steward.Undelivered(err)
	}
	defer os.RemoveAll(dir)
	env, err := cli.StoreFor(dir, c.ledger, c.passStore)
	if err != nil {
		return steward.Undelivered(err)
	}
	c.Env, c.Scratch = append(cli.InheritedEnv(cli.AttemptVariables...), env...), dir
	return c.Command.Deliver(ctx, e)
}

func beside(dir, path string) string {
	if dir == "" || path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

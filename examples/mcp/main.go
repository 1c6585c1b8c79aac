// Mcp tells a story with real processes. Two agents share a task. One of them
// is frozen in the middle of a tool call and replaced. Then it wakes up, and
// calls the next tool.
//
//	go run ./examples/mcp
//
// Each agent holds the lease on the task, and has an MCP server for its files
// behind a croft mcp of its own. Leases, marks and files are in a temporary
// folder. The program builds croft, unless -croft names one.
//
//	go run ./examples/mcp -rounds 200 -seed 7
//
// plays takeovers with random faults instead: frozen agents and proxies, killed
// proxies, servers and agents, and cut pipes. It judges what the servers have
// done.
//
// The file agent.go has the agents, files.go their MCP server, actor.go how the
// story speaks with them, and rounds.go the takeovers. An agent has a goroutine
// that makes its calls, and one that reads the answers of its proxy. An actor
// has a goroutine that reads what its agent says. They share channels only.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/dir" // a store in a folder
	"github.com/croft-dev/croft/store/refusals"
)

// task is the key on which the agents hold a lease.
const task = "tasks/42"

// ttl is how long the store keeps the task for an agent that it does not hear
// from. It is short for the story; a minute is usual.
const ttl = 6 * time.Second

// patience bounds every wait for something that must happen.
const patience = 2 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcp:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch { // this process is a part of the story
	case len(args) == 4 && args[0] == "agent":
		return agent(ctx, args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "files":
		return serveFiles(args[1], args[2])
	}
	flags := flag.NewFlagSet("mcp", flag.ExitOnError)
	program := flags.String("croft", "", "the program croft (default: build it)")
	rounds := flags.Int("rounds", 0, "play so many takeovers with random faults")
	seed := flags.Uint64("seed", 1, "where the random faults begin")
	_ = flags.Parse(args) // exits by itself on an error
	folder, err := os.MkdirTemp("", "croft-mcp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if *program == "" {
		if *program, err = build(ctx, folder); err != nil {
			return err
		}
	}
	p, err := newPlace(ctx, folder, *program)
	if err != nil {
		return err
	}
	defer p.close()
	if *rounds > 0 {
		_, err := p.play(ctx, os.Stdout, *rounds, *seed)
		return err
	}
	return p.tell(ctx, os.Stdout)
}

// build builds the program croft, like a release.
func build(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "croft")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path,
		"github.com/croft-dev/croft/cmd/croft")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}

// place is the folder that the agents share.
type place struct {
	folder, croft string
	client        *croft.Client // the supervisor's
}

func newPlace(ctx context.Context, folder, program string) (*place, error) {
	c, err := croft.Open(ctx, filepath.Join(folder, "store"), &croft.Options{Owner: "supervisor"})
	if err != nil {
		return nil, err
	}
	return &place{folder, program, c}, nil
}

func (p *place) close() { _ = p.client.Close() }

// content returns what the file of the task has.
func (p *place) content() string {
	text, _ := os.ReadFile(filepath.Join(p.folder, "plan.md"))
	return string(text)
}

// refusal waits until the store has noted that a write of an agent was refused.
func (p *place) refusal(ctx context.Context, name string) (r refusals.Refusal, err error) {
	err = until("the note of a refusal of "+name, func() bool {
		all, _ := refusals.Read(ctx, p.client.Store(), task)
		for _, r = range all {
			if r.Owner == name && r.Act == "write" {
				return true
			}
		}
		return false
	})
	return r, err
}

// until waits for something that must happen.
func until(what string, ok func() bool) error {
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("waited %s for %s in vain", patience, what)
		}
	}
	return nil
}

// tell tells the story.
func (p *place) tell(ctx context.Context, out io.Writer) error {
	chapter := func(text string) { _, _ = fmt.Fprintf(out, "\n%s\n", text) }
	says := func(who, format string, args ...any) {
		_, _ = fmt.Fprintf(out, "   %-6s  %s\n", who, fmt.Sprintf(format, args...))
	}
	chapter("A plan is to be written. Ann has the task, and writes with the tools of an MCP server.")
	ann, err := p.start("ann")
	if err != nil {
		return err
	}
	defer ann.end()
	says("ann", "has %s under token %d", task, ann.token)
	said, err := ann.call("write_file", "ann's plan", false)
	if err != nil {
		return err
	}
	says("ann", "write_file: %s", said)
	answer, err := ann.begin("write_file", "ann's second plan", true)
	if err != nil {
		return err
	}
	if err := until("the server", func() bool { return p.exists("under-way-ann") }); err != nil {
		return err
	}
	if err := ann.freeze(true); err != nil {
		return err
	}
	says("ann", "is frozen in the middle of a call, with her proxy (these are real SIGSTOPs)")

	chapter("Nobody knows whether ann is dead or slow. After her TTL the task goes to bob.")
	bob, err := p.start("bob")
	if err != nil {
		return err
	}
	defer bob.end()
	says("bob", "has %s under token %d", task, bob.token)
	if said, err = bob.insist("bob's plan"); err != nil {
		return err
	}
	says("bob", "write_file: %s", said)

	chapter("Ann wakes up, and knows nothing of it.")
	if err := ann.thaw(); err != nil {
		return err
	}
	if said, err = answer(); err != nil {
		return err
	}
	says("ann", "her call is answered: %s", said)
	if said, err = ann.insist("ann's last plan"); err != nil {
		return err
	}
	says("ann", "write_file: %s", said)
	says("file", "%s", p.content())
	r, err := p.refusal(ctx, "ann")
	if err != nil {
		return err
	}
	says("store", "has noted a refused write of %s under token %d (%s); the newest token is %d", r.Owner, r.Token,
		r.Code, r.Newest)
	return nil
}

func (p *place) exists(name string) bool {
	_, err := os.Stat(filepath.Join(p.folder, name))
	return err == nil
}

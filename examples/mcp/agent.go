package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/croft-dev/croft"
)

// order is what the story tells an agent to do, as a line of JSON.
type order struct {
	// Cut is "in" or "out": close the proxy's standard input, or stop reading
	// its output. Otherwise the order is a call.
	Cut    string
	Tool   string
	Text   string
	Slowly bool
}

// event is what an agent tells, as a line of JSON.
type event struct {
	Token int64  // it has the task
	Proxy int    // its proxy has this process id
	Said  string // the answer to its oldest call
	Error string // why it gives up
}

// agent runs an agent process. It takes the task, and does what it is told.
//
// It is careless: it goes on when its lease is lost. Nothing depends on that.
func agent(ctx context.Context, name, folder, program string) error {
	out := json.NewEncoder(os.Stdout)
	say := func(e event) { _ = out.Encode(e) } // without a reader nobody gives orders, either
	client, err := croft.Open(ctx, filepath.Join(folder, "store"), &croft.Options{Owner: name})
	if err != nil {
		say(event{Error: err.Error()})
		return err
	}
	defer client.Close()
	lease, err := client.Acquire(ctx, task, &croft.LeaseOptions{TTL: ttl, WaitFor: patience})
	if err != nil {
		say(event{Error: err.Error()})
		return err
	}
	h := &host{
		name: name, folder: folder, program: program, deed: filepath.Join(folder, "lease-"+name), say: say,
		orders: make(chan order, 100), cut: make(chan string, 1),
	}
	if err := os.WriteFile(h.deed, []byte(lease.Deed().Text()), 0o600); err != nil {
		return err
	}
	if err := h.connect(); err != nil {
		say(event{Error: err.Error()})
		return err
	}
	say(event{Token: int64(lease.Token())})
	go h.work()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Cut != "" {
			h.cut <- o.Cut
			continue
		}
		h.orders <- o
	}
	return nil
}

// host is the part of an agent that starts MCP servers and calls their tools.
type host struct {
	name, folder, program, deed string

	say    func(event)
	orders chan order
	cut    chan string

	proxy  *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	lines  chan string // closed when the proxy says nothing more
	nextID int
}

// unguarded stands for no proxy at all. It shows that stale writes are not
// stopped then.
const unguarded = "none"

// connect starts the proxy, with the server behind it. It gets the lease as any
// host of MCP servers hands it on: in a variable.
func (h *host) connect() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := []string{self, "files", h.folder, h.name}
	h.proxy = exec.Command(h.program, append([]string{
		"mcp", "--read", "read_file", "--ttl", "2s", "--settle", "200ms", "--wait", "20s", "--",
	}, server...)...)
	if h.program == unguarded {
		h.proxy = exec.Command(server[0], server[1:]...)
	}
	apart(h.proxy)
	h.proxy.Env = append(os.Environ(), "CROFT_LEASE=@"+h.deed, "CROFT_STORE="+filepath.Join(h.folder, "store"))
	if h.in, err = h.proxy.StdinPipe(); err != nil {
		return err
	}
	if h.out, err = h.proxy.StdoutPipe(); err != nil {
		return err
	}
	if err := h.proxy.Start(); err != nil {
		return err
	}
	h.say(event{Proxy: h.proxy.Process.Pid})
	h.lines = make(chan string)
	go func(out io.Reader, lines chan<- string) {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}(h.out, h.lines)
	return nil
}

// work makes the calls, one after the other.
func (h *host) work() {
	for o := range h.orders {
		said, err := h.call(o)
		if err != nil { // the proxy has ended: a host starts it again for the next call
			_ = h.in.Close()
			_ = h.out.Close()
			go func(lines <-chan string) {
				for range lines { // the last words
				}
			}(h.lines)
			_ = h.proxy.Wait()
			said = "gone: " + err.Error()
			if err := h.connect(); err != nil {
				said += "; " + err.Error()
			}
		}
		h.say(event{Said: said})
	}
}

// call calls a tool. It returns the text of the result.
func (h *host) call(o order) (string, error) {
	h.nextID++
	request, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": h.nextID, "method": "tools/call",
		"params": map[string]any{
			"name": o.Tool, "arguments": map[string]any{"text": o.Text, "slowly": o.Slowly},
			"_meta": map[string]any{
				"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
				"io.modelcontextprotocol/clientCapabilities": map[string]any{},
			},
		},
	})
	if err != nil {
		return "", err
	}
	if _, err := h.in.Write(append(request, '\n')); err != nil {
		return "", err
	}
	for {
		select {
		case line, open := <-h.lines:
			if !open {
				return "", errors.New("the proxy has ended")
			}
			var m struct {
				ID     int
				Result *struct{ Content []struct{ Text string } }
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result == nil || len(m.Result.Content) != 1 {
				return "", fmt.Errorf("the proxy said %s", line)
			}
			if m.ID == h.nextID {
				return m.Result.Content[0].Text, nil
			}
		case end := <-h.cut:
			if end == "in" {
				_ = h.in.Close() // the answer may still come
				continue
			}
			_ = h.out.Close()
			return "", errors.New("nobody reads what the proxy says")
		}
	}
}

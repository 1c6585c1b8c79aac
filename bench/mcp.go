package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft"
)

// benchMCP measures a call of a tool through croft mcp, as a read and as a
// fenced write, beside the same call straight to the server. The server is
// croft mcp serve, with a tool that asks no store.
func benchMCP(ctx context.Context, b *bench) error {
	program, _, err := b.buildCroft(ctx)
	if err != nil {
		return err
	}
	redis, err := b.redis()
	if err != nil {
		return err
	}
	path, err := b.folder("mcp")
	if err != nil {
		return err
	}
	t := b.newTable()
	t.columns = []column{
		{"direct", "without croft mcp", asTime},
		{"read", "a read", asTime},
		{"read ratio", "ratio", asRatio},
		{"write", "a fenced write", asTime},
		{"write ratio", "ratio", asRatio},
	}
	for i, st := range []namedStore{
		{name: "Redis", url: "redis://" + redis.addr},
		{name: "SQLite", url: "sqlite://" + path + "/mcp.db"},
		{name: "directory", url: "dir://" + path + "/mcp"},
	} {
		m := &mcpBench{b: b, program: program, url: st.url, folder: path}
		values, err := m.measure(ctx, i == 0, t)
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		t.Rows = append(t.Rows, row{st.name, values})
	}
	t.Notes = append(t.Notes,
		"a fenced write takes and releases a lease, because the proxies of other agents wait for it")
	b.add(t)
	return nil
}

// mcpBench has the processes of one store.
type mcpBench struct {
	b            *bench
	program      string
	url          string
	folder, deed string
}

func (m *mcpBench) measure(ctx context.Context, memory bool, t *table) (map[string]float64, error) {
	client, err := croft.Open(ctx, m.url, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	lease, err := client.Acquire(ctx, "tasks/bench", &croft.LeaseOptions{TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	m.deed = filepath.Join(m.folder, "lease")
	if err := os.WriteFile(m.deed, []byte(lease.Deed().Text()), 0o600); err != nil {
		return nil, err
	}
	server := []string{"mcp", "serve"}
	var servers []*mcpServer
	defer func() {
		for _, s := range servers {
			s.end()
		}
	}()
	for _, args := range [][]string{
		server,
		append([]string{"mcp", "--read", mcpTool, "--", m.program}, server...),
		append([]string{"mcp", "--settle", "1ms", "--", m.program}, server...), // no gate was here before
	} {
		s, err := m.start(ctx, args)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	const warm = 20
	took := make([][]time.Duration, len(servers))
	for n := range m.b.count(2000) + warm {
		for i, s := range servers {
			d, err := s.call()
			if err != nil {
				return nil, err
			}
			if n >= warm {
				took[i] = append(took[i], d)
			}
		}
	}
	values := map[string]float64{}
	for i, name := range []string{"direct", "read", "write"} {
		values[name] = float64(median(took[i]))
	}
	values["read ratio"], values["write ratio"] = values["read"]/values["direct"], values["write"]/values["direct"]
	if memory {
		return values, m.memory(servers[2], t)
	}
	return values, nil
}

// mcpCalls is how many fenced calls the memory is measured over, and mcpAhead
// how many of them are on their way at a time.
const mcpCalls, mcpAhead = 100_000, 32

// memory notes how much memory croft mcp has early, and after many calls.
func (m *mcpBench) memory(s *mcpServer, t *table) error {
	calls := m.b.count(mcpCalls)
	early := 0
	for n := range calls + mcpAhead {
		if n == calls/10 {
			early = residentOf(s.cmd.Process.Pid)
		}
		if n < calls {
			if err := s.ask(); err != nil {
				return err
			}
		}
		if n >= mcpAhead {
			if err := s.answer(); err != nil {
				return err
			}
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("memory of croft mcp: %d MB after %d fenced calls, %d MB after %d",
		early>>20, calls/10, residentOf(s.cmd.Process.Pid)>>20, calls))
	return nil
}

// residentOf returns the memory that a process has, in bytes. It is 0 if the
// system does not tell.
func residentOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.Atoi(fields[0])
	return kilobytes << 10
}

// mcpTool is a tool that asks no store if there is no lease around the server.
const mcpTool = "my_work"

// mcpServer is a process that speaks MCP. The croft mcp gets the lease, and
// hides it from the server behind it.
type mcpServer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func (m *mcpBench) start(ctx context.Context, args []string) (*mcpServer, error) {
	s := &mcpServer{cmd: exec.CommandContext(ctx, m.program, args...)}
	s.cmd.Env = append(os.Environ(), "CROFT_STORE="+m.url)
	if len(args) > 2 {
		s.cmd.Env = append(s.cmd.Env, "CROFT_LEASE=@"+m.deed)
	}
	s.cmd.Stderr = os.Stderr
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.cmd.Start()
}

func (s *mcpServer) end() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

// call calls the tool and waits for its result.
func (s *mcpServer) call() (time.Duration, error) {
	start := time.Now()
	if err := s.ask(); err != nil {
		return 0, err
	}
	err := s.answer()
	return time.Since(start), err
}

func (s *mcpServer) ask() error {
	s.id++
	const ask = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}` + "\n"
	_, err := fmt.Fprintf(s.in, ask, s.id, mcpTool)
	return err
}

// answer reads the next answer, which must be the tool's result.
func (s *mcpServer) answer() error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	var m struct {
		Result struct{ StructuredContent map[string]any }
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Result.StructuredContent["owner"] == nil {
		return fmt.Errorf("the call was answered with %s", line)
	}
	return nil
}

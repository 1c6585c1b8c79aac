//go:build linux

package peers

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// TestTheConformanceSuiteReportsTheSame about a server and about croft mcp in
// front of it, for two revisions: all that each requires.
func TestTheConformanceSuiteReportsTheSame(t *testing.T) {
	t.Parallel()
	node, packages := node(t)
	d := newSetting(t)
	_, everything := goSDK(t)
	for name, server := range map[string]struct {
		command   []string
		path      string
		revisions []string
	}{
		"the SDK for Go": {
			[]string{everything, "-http", "ADDRESS"}, "/", []string{"2025-11-25", "2026-07-28"},
		},
		"the SDK for Go with sessions": {
			[]string{everything, "-stateless=false", "-http", "ADDRESS"}, "/", []string{"2025-11-25"},
		},
		"the server for everything": {
			[]string{node, packaged(packages, "server-everything"), "streamableHttp"}, "/mcp", []string{"2025-11-25"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := d.serve(t, server.command) + server.path
			front := d.behind(t, at) + server.path
			for _, revision := range server.revisions {
				c := conformance{t: t, env: d.env, node: node, packages: packages, revision: revision}
				c.compare(c.report(at), c.report(front))
			}
		})
	}
}

// TestTheSDKForGoHearsTheSameOverHTTP through croft mcp, with sessions and in
// the revision without.
func TestTheSDKForGoHearsTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	d := newSetting(t)
	client, everything := goSDK(t)
	for revision, stateless := range map[string]string{"2025-11-25": "false", "2026-07-28": "true"} {
		at := d.serve(t, []string{everything, "-stateless=" + stateless, "-http", "ADDRESS"})
		same(t, 100, d.hear(client, revision, at+"/"), d.hear(client, revision, d.behind(t, at+"/")+"/"))
	}
}

// serve starts a server on a free port, and returns its URL.
func (d *setting) serve(t *testing.T, command []string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	command = slices.Clone(command)
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "ADDRESS", address)
	}
	_, port, _ := net.SplitHostPort(address)
	d.start(t, append(slices.Clip(d.env), "PORT="+port), command)
	for end := time.Now().Add(testenv.Patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		if time.Now().After(end) {
			t.Fatalf("%v does not listen: %v", command, err)
		}
	}
}

// start runs a program until the end of the test.
func (d *setting) start(t *testing.T, env, command []string) {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	c.Env, c.Stdout, c.Stderr = env, t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// behind starts croft mcp in front of a server, and returns its URL.
func (d *setting) behind(t *testing.T, upstream string) string {
	t.Helper()
	return d.serve(t, []string{
		d.croft, "mcp", "--tasks", "--upstream", upstream, "--listen", "ADDRESS",
		"--settle", "2s", "--answer-within", "2s", "--fence", "* as " + path.Base(t.Name()),
	})
}

// conformance runs the suite.
type conformance struct {
	t              *testing.T
	env            []string
	node, packages string
	revision       string
}

// check is one check of the suite. There may be several of one name.
type check struct{ scenario, id string }

// report returns the worst outcome of each check, with what was said about it.
func (c *conformance) report(server string) map[check]string {
	c.t.Helper()
	out := c.t.TempDir()
	cmd := exec.Command(c.node, "--import", filepath.Join(c.packages, "stamp.mjs"),
		packaged(c.packages, "conformance"), "server",
		"--url", server, "--requirements", c.revision, "--output-dir", out)
	cmd.Dir, cmd.Env = out, c.env
	said, _ := cmd.CombinedOutput() // it fails if a check fails, with croft mcp or without
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		c.t.Fatalf("the suite has written no report: %v\n%s", err, said)
	}
	all := map[check]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(text, &checks); err != nil {
			c.t.Fatal(err)
		}
		scenario := written.ReplaceAllString(filepath.Base(filepath.Dir(file)), "")
		for _, found := range checks {
			name := check{scenario, found.ID}
			if all[name] == "" || found.Status == failure {
				all[name] = strings.TrimSpace(found.Status + " " + found.ErrorMessage)
			}
		}
	}
	return all
}

// failure is the status of a check that failed.
const failure = "FAILURE"

// written finds the time in the name of a report.
var written = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)

// inDoubt is a check in which the server ends the stream of a write, and never
// answers. Without croft the call ends with nothing. With croft its answer says
// that it is in doubt, which the suite counts as a call that failed.
var inDoubt = check{"server-server-sse-polling", "incoming-sse-event"}

// compare reports checks that fail only with croft mcp. Some fail only without
// it, because it is stricter than the server.
func (c *conformance) compare(without, with map[check]string) {
	c.t.Helper()
	passed, stricter := 0, 0
	for name, status := range without {
		fails, failed := strings.HasPrefix(with[name], failure), strings.HasPrefix(status, failure)
		switch {
		case with[name] == "":
			c.t.Errorf("%s: %v is missing with croft mcp", c.revision, name)
		case fails && !failed:
			c.t.Errorf("%s: %v is %s, and with croft mcp %s", c.revision, name, status, with[name])
		case failed && !fails:
			stricter++
		case !fails:
			passed++
		}
	}
	for name, status := range with {
		if without[name] == "" && strings.HasPrefix(status, failure) && name != inDoubt {
			c.t.Errorf("%s: %v is there only with croft mcp: %s", c.revision, name, status)
		}
	}
	if passed < 40 {
		c.t.Errorf("%s: only %d checks passed", c.revision, passed)
	}
	c.t.Logf("%d answers compared: %s, of which %d pass and %d pass only with croft mcp", len(with), c.revision, passed,
		stricter)
}

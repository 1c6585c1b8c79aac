//go:build linux

package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	_ "github.com/croft-dev/croft/backend/dir" // a store in a folder
	"github.com/croft-dev/croft/internal/test/testenv"
)

var all = flag.Bool("all", false, "use the packages of npm, too")

// setting is a task, with a croft for those who work on it.
type setting struct {
	t     *testing.T
	dir   string
	croft string
	env   []string
}

// newSetting takes the task for the length of a test.
func newSetting(t *testing.T) *setting {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take a while")
	}
	d := &setting{t: t, dir: testenv.Memory(t)}
	d.croft = filepath.Join(d.dir, "croft")
	if err := testenv.BuildCroft(d.croft); err != nil {
		t.Fatal(err)
	}
	c, err := croft.Open(t.Context(), filepath.Join(d.dir, "store"), &croft.Options{Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	lease, err := c.Acquire(t.Context(), "tasks/42", &croft.LeaseOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.dir, "lease")
	if err := os.WriteFile(file, []byte(lease.Deed().Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	d.env = append(os.Environ(), "CROFT_STAMP="+lease.Stamp().String(), "CROFT_LEASE=@"+file, "CROFT_STORE="+filepath.Join(d.dir, "store"))
	return d
}

// through returns the command of a server behind croft mcp. Without --tasks it
// would hide tasks from the client.
func (d *setting) through(server []string) []string {
	return append([]string{d.croft, "mcp", "--tasks", "--"}, server...)
}

// hear runs a client and returns what it has printed.
func (d *setting) hear(command ...string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Minute) // detects hanging, not slowness
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr, c.Env = &out, &said, d.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if err := c.Run(); err != nil {
		d.t.Fatalf("%v: %v\n%s%s", command, err, &out, &said)
	}
	return clock.ReplaceAllString(out.String(), "the time")
}

// clock finds what a server says about the time.
var clock = regexp.MustCompile(`\d+:\d\d:\d\d [AP]M|\d{4}-\d\d-\d\dT[\d:.]+Z`)

// same compares what was heard without croft and with it.
func same(t *testing.T, least int, without, with string) {
	t.Helper()
	a, b := strings.Split(strings.TrimSpace(without), "\n"), strings.Split(strings.TrimSpace(with), "\n")
	if len(a) < least {
		t.Errorf("the client heard only %d things:\n%s", len(a), without)
	}
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a) || i >= len(b):
			t.Errorf("without croft the client heard %d things, with it %d", len(a), len(b))
			return
		case a[i] != b[i]:
			t.Errorf("without croft the client heard\n%.800s\nand with it\n%.800s", a[i], b[i])
		}
	}
	t.Logf("%d answers compared", len(b)) // make proof adds them up
}

// goSDK returns the client made with the SDK for Go, and the SDK's own server.
func goSDK(t *testing.T) (client, server string) {
	t.Helper()
	return testenv.Built(t, "mcpsdk", "."),
		testenv.BuiltOf(t, "mcpsdk", "mcpeverything", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
}

// TestTheSDKForGoHearsTheSame through croft mcp, in three revisions: tools with
// rounds, progress, requests of the server, resources, prompts and errors.
func TestTheSDKForGoHearsTheSame(t *testing.T) {
	t.Parallel()
	d := newSetting(t)
	client, server := goSDK(t)
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		same(t, 100, d.hear(client, revision, server), d.hear(append([]string{client, revision}, d.through([]string{server})...)...))
	}
}

// TestTheSDKForGoUsesCroftsOwnServer in three revisions.
func TestTheSDKForGoUsesCroftsOwnServer(t *testing.T) {
	t.Parallel()
	d := newSetting(t)
	client, _ := goSDK(t)
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		heard := d.hear(client, revision, d.croft, "mcp", "serve")
		for what, part := range map[string]string{
			"croft's name": `"name":"croft"`, "a schema": `"additionalProperties":false`, "its lease": `"yours":true`,
			"a report": `"progress_at":"`, "a refusal": `Refused by croft (invalid)`, "no lease": `"state":"free"`,
		} {
			if !strings.Contains(heard, part) {
				t.Errorf("in %s the client did not hear of %s:\n%s", revision, what, heard)
			}
		}
	}
}

// node returns Node, and the folder with the packages of npm.
func node(t *testing.T) (program, packages string) {
	t.Helper()
	if !*all {
		t.Skip("only with -all: make proof runs it")
	}
	program = testenv.Program(t, "node", "nodejs")
	version, err := exec.Command(program, "--version").Output()
	var major int
	if _, scanned := fmt.Sscanf(string(version), "v%d", &major); err != nil || scanned != nil {
		t.Fatalf("node --version: %q, %v, %v", version, err, scanned)
	}
	if major < 22 {
		testenv.Missing(t, "node is %s; install node 22 or newer", strings.TrimSpace(string(version)))
	}
	return program, testenv.NPM(t, "npm")
}

// packaged returns the program of a package of npm.
func packaged(packages, name string) string {
	return filepath.Join(packages, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
}

// TestTheServerForEverythingSaysTheSame through croft mcp, to clients made with
// both SDKs.
func TestTheServerForEverythingSaysTheSame(t *testing.T) {
	t.Parallel()
	node, packages := node(t)
	d := newSetting(t)
	client, _ := goSDK(t)
	server := []string{node, packaged(packages, "server-everything")}
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		same(t, 60, d.hear(append([]string{client, revision}, server...)...),
			d.hear(append([]string{client, revision}, d.through(server)...)...))
	}
	script := filepath.Join(packages, "client.mjs")
	calls := steps(t, step{"echo", args{"message": "ü 😀 \u2028"}}, step{"get-sum", args{"a": 1, "b": 1e3}},
		step{"get-tiny-image", nil}, step{"none", nil}, step{"get-structured-content", args{"location": "New York"}})
	for _, version := range []string{"v1", "v2"} {
		client := slices.Clip([]string{node, script, version, calls})
		without := d.hear(append(client, server...)...)
		same(t, 10, without, d.hear(append(client, d.through(server)...)...))
		if without == d.hear(append(client, append([]string{d.croft, "mcp", "--"}, server...)...)...) {
			t.Error("the comparison does not find that croft hides tasks")
		}
	}
}

// TestTheSDKForTypeScriptSpeaksTheNewestRevision through croft mcp, with the
// server of the SDK for Go.
func TestTheSDKForTypeScriptSpeaksTheNewestRevision(t *testing.T) {
	t.Parallel()
	node, packages := node(t)
	d := newSetting(t)
	_, server := goSDK(t)
	script := filepath.Join(packages, "client.mjs")
	calls := steps(t, step{"test_simple_text", nil}, step{"test_image_content", nil}, step{"test_error_handling", nil},
		step{"test_input_required_result_list_roots", nil}, step{"test_tool_with_progress", nil})
	for _, version := range []string{"v1", "v2", "2026-07-28"} {
		same(t, 10, d.hear(node, script, version, calls, server),
			d.hear(append([]string{node, script, version, calls}, d.through([]string{server})...)...))
	}
}

// TestTheServerForFilesDoesTheSame through croft mcp, and leaves the same
// files.
func TestTheServerForFilesDoesTheSame(t *testing.T) {
	t.Parallel()
	node, packages := node(t)
	d := newSetting(t)
	script := filepath.Join(packages, "client.mjs")
	for _, version := range []string{"v1", "v2"} {
		var heard, left [2]string
		for i, through := range []bool{false, true} {
			folder := filepath.Join(d.dir, fmt.Sprintf("%s-%d", version, i))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			plan, moved := filepath.Join(folder, "plan.md"), filepath.Join(folder, "sub", "moved.md")
			server := []string{node, packaged(packages, "server-filesystem"), folder}
			if through {
				server = d.through(server)
			}
			calls := steps(t,
				step{"write_file", args{"path": plan, "content": "a plan\nof ü and 😀\n"}},
				step{"read_text_file", args{"path": plan}},
				step{"edit_file", args{"path": plan, "edits": []args{{"oldText": "plan", "newText": "better plan"}}}},
				step{"create_directory", args{"path": filepath.Dir(moved)}},
				step{"move_file", args{"source": plan, "destination": moved}},
				step{"list_directory", args{"path": folder}},
				step{"read_text_file", args{"path": "/etc/passwd"}},
				step{"write_file", args{"path": plan, "content": strings.Repeat("x", 60<<10)}},
				step{"search_files", args{"path": folder, "pattern": "**/*.md"}},
			)
			said := d.hear(append([]string{node, script, version, calls}, server...)...)
			heard[i] = strings.ReplaceAll(said, folder, "FOLDER")
			text, err := os.ReadFile(moved)
			if err != nil {
				t.Fatal(err)
			}
			left[i] = string(text)
		}
		same(t, 10, heard[0], heard[1])
		if left[0] != left[1] || !strings.Contains(left[1], "better plan") {
			t.Errorf("the files have %q and %q", left[0], left[1])
		}
	}
}

type (
	args map[string]any
	step struct {
		Tool string `json:"tool"`
		Args args   `json:"args"`
	}
)

func steps(t *testing.T, all ...step) string {
	t.Helper()
	for i := range all {
		if all[i].Args == nil {
			all[i].Args = args{}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sound is a tree that keeps every law and uses everything that the plan
// allows. Each case below breaks it once.
var sound = map[string]string{
	"croft.go":                    imports("croft", "context", module+"/store", module+"/guard", module+"/tenure", module+"/internal/clock"),
	"croft_test.go":               imports("croft", "testing", "pgregory.net/rapid", module+"/backend/mem") + "var _ = Program(t, \"spin\", \"spin\")\n",
	"tenure/law.go":               imports("tenure", "time", module+"/fence"),
	"fence/mark.go":               imports("fence", "errors"),
	"store/store.go":              imports("store", module+"/tenure", module+"/internal/registry"),
	"store/storetest/suite.go":    imports("storetest", "testing", module+"/store"),
	"guard/guard.go":              imports("guard", module+"/fence"),
	"work/item.go":                imports("work", module, module+"/store"),
	"backend/mem/store.go":        imports("mem", module+"/store", module+"/work", module+"/backend/mem/journal"),
	"backend/mem/journal/j.go":    imports("journal", "os"),
	"backend/redis/store.go":      imports("redis", module+"/store", module+"/guard", "github.com/redis/go-redis/v9"),
	"boundary/httpfence/proxy.go": imports("httpfence", "net/http", module, module+"/guard"),
	"cmd/croft/main.go":           imports("main", module, module+"/work", module+"/backend/mem", "github.com/spf13/cobra"),
	"internal/clock/clock.go":     imports("clock", "time", "golang.org/x/sys/unix"),
	"internal/registry/reg.go":    imports("registry", module+"/fence"),
	"bench/main.go":               imports("main", module+"/backend/redis", "github.com/go-redsync/redsync/v4"),
	"tenure/testdata/util.go":     "not even Go",
	".tools/types.go":             "not even Go",
	"go.mod":                      "module " + module + "\n",
	"bench/go.mod":                "module " + module + "/bench\n",
	".github/dependabot.yml":      bot + "  - package-ecosystem: npm\n    directory: /ts\n",
	"docs/supply-chain.md":        "`a/b`, `debian:12`, `spin`, `rpm`, `tsc`\n",
	".github/workflows/a.yml":     readOnly + "steps:\n  - uses: a/b@fbc6f3992d24b796d5a048ff273f7fcc4a7b6c09 # v5\n  - run: apt-get install -qy rpm && make test\n",
	"Dockerfile":                  "FROM --platform=x debian:12 AS files\nFROM scratch\n",
	"ts/package-lock.json":        "{\"packages\": {\"node_modules/tsc\": {}}}",
	"README.md":                   "Make sure to\n\n```\n$ " + commands[0] + "\n$ make test\n```\n\nor `make quick`.\n",
	"Makefile":                    ".PHONY: test\ntest: lint ## all\n\tgo test ./...\nquick:\n",
}

// bot is the beginning of Dependabot's settings.
const bot = "updates:\n  - directories:\n      - /\n      - /bench\n  - package-ecosystem: github-actions\n    directory: /\n" +
	"  - package-ecosystem: docker\n    directory: /\n"

func imports(name string, paths ...string) string {
	var b strings.Builder
	b.WriteString("// Package " + name + " is here for its imports.\npackage " + name + "\n\nimport (\n")
	for _, p := range paths {
		b.WriteString("\t_ \"" + p + "\"\n")
	}
	b.WriteString(")\n")
	return b.String()
}

// write makes a tree of files, with changes to them, and returns its top.
func write(t *testing.T, files, changes map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for _, part := range []map[string]string{files, changes} {
		for name, text := range part {
			file := filepath.Join(top, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return top
}

// broken applies every law to a tree, and returns the reports.
func broken(t *testing.T, top string) []string {
	t.Helper()
	tree, err := readTree(top)
	if err != nil {
		t.Fatal(err)
	}
	found, err := brokenPromises(top)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := looseSupply(top)
	if err != nil {
		t.Fatal(err)
	}
	unlisted, err := unlistedSupply(top)
	if err != nil {
		t.Fatal(err)
	}
	found = append(append(found, loose...), unlisted...)
	for _, law := range goLaws {
		found = append(found, law(tree)...)
	}
	return found
}

func TestASoundTreeIsLeftInPeace(t *testing.T) {
	report(t, broken(t, write(t, sound, nil)))
}

// readOnly is the beginning of a workflow whose token may only read the
// repository.
const readOnly = "permissions:\n  contents: read\n\n"

// TestEveryBreachIsCaught breaks the sound tree once for each case.
// Exactly that must be reported, with its position.
func TestEveryBreachIsCaught(t *testing.T) {
	long := strings.Repeat("// line\n", longest+1)
	cases := []struct {
		name, file, text, want string
	}{
		{"the law imports a module of others", "tenure/codec.go", imports("tenure", "gopkg.in/yaml.v3"), "tenure/codec.go:5: imports gopkg.in/yaml.v3;"},
		{"a suite imports a module of others", "store/storetest/law.go", imports("storetest", "pgregory.net/rapid"), "store/storetest/law.go:5: imports pgregory.net/rapid;"},
		{"the root imports a module of others", "client.go", imports("croft", "github.com/spf13/cobra"), "client.go:5: imports github.com/spf13/cobra;"},
		{"internal imports a module of others", "internal/clock/x.go", imports("clock", "github.com/a/b"), "internal/clock/x.go:5: imports github.com/a/b;"},
		{"work imports a module of others", "work/sql.go", imports("work", "github.com/jackc/pgx/v5"), "work/sql.go:5: imports github.com/jackc/pgx/v5;"},
		{"the law opens into a contract", "fence/x.go", imports("fence", module+"/guard"), "never into guard"},
		{"a contract opens into the root", "store/x.go", imports("store", module), "never into (root)"},
		{"a contract opens into a backend", "store/x.go", imports("store", module+"/backend/mem"), "never into backend"},
		{"the root opens into work", "client.go", imports("croft", module+"/work"), "never into work"},
		{"the root opens into a backend", "client.go", imports("croft", module+"/backend/mem"), "never into backend"},
		{"work opens into a backend", "work/x.go", imports("work", module+"/backend/redis"), "never into backend"},
		{"a backend opens into the root", "backend/mem/x.go", imports("mem", module), "never into (root)"},
		{"a backend opens into another", "backend/mem/x.go", imports("mem", module+"/backend/redis"), "backend/mem knows no other backend"},
		{"a backend's folder opens into another", "backend/mem/journal/x.go", imports("journal", module+"/backend/redis"), "backend/mem knows no other backend"},
		{"the signals open into a boundary", "observe/x.go", imports("observe", module+"/boundary/httpfence"), "never into boundary"},
		{"a boundary opens into a backend", "boundary/httpfence/x.go", imports("httpfence", module+"/backend/mem"), "never into backend"},
		{"a way around through internal", "internal/registry/x.go", imports("registry", module+"/backend/mem"), "store/store.go:6: imports github.com/croft-dev/croft/backend/mem (through internal/registry)"},
		{"an import on one system only", "fence/x_windows.go", "//go:build windows\n\n" + imports("fence", module+"/store"), "never into store"},
		{"something opens into the command", "work/x.go", imports("work", module+"/cmd/croft"), "never into cmd"},
		{"a room without a line in the plan", "attic/x.go", imports("attic", "os"), `no room "attic"`},
		{"a package without a comment", "fence/mark.go", "package fence\n", "fence: no package comment"},
		{"a package commented in its test alone", "store/cas/cas_test.go", imports("cas", "os"), "store/cas: no package comment"},
		{"a goroutine without a state model", "guard/go.go", imports("guard", "os") + "func f() { go f() }\n", "guard/go.go:7: starts a goroutine"},
		{"a group's goroutine without a state model", "guard/go.go", imports("guard", "sync") + "func f(g sync.WaitGroup) { g.Go(f) }\n", "guard/go.go:7: starts a goroutine"},
		{"a long file", "guard/long.go", imports("guard", "os") + long, "guard/long.go: 507 lines"},
		{"a file named after nothing", "guard/util_linux.go", imports("guard", "os"), "guard/util_linux.go: a name for everything"},
		{"a test named after nothing", "guard/helpers_test.go", imports("guard", "os"), "guard/helpers_test.go: a name for everything"},
		{"a package named after nothing", "internal/common/c.go", imports("common", "os"), "internal/common: a name for everything"},
		{"a README without its first command", "README.md", "`make test`", "go run ./cmd/croft run hello"},
		{"a README without its second command", "README.md", commands[0], "does not give the command: make test"},
		{"a README that names no target", "README.md", sound["README.md"] + "`make coffee`", "names `make coffee`"},
		{"a workflow that runs no target", ".github/workflows/tea.yml", readOnly + "steps:\n  - run: make tea\n", "tea.yml runs `make tea`"},
		{"an action by its tag", ".github/workflows/tea.yml", readOnly + "  - uses: a/b@v5\n", "uses a/b@v5; name the commit"},
		{"an action by a short commit", ".github/workflows/tea.yml", readOnly + "    uses: a/b@fbc6f39 # v5\n", "uses a/b@fbc6f39; name the commit"},
		{"an action by its tag in quotes", ".github/workflows/tea.yml", readOnly + "  - \"uses\": 'a/b@v5'\n", "uses 'a/b@v5'; name the commit"},
		{"an action by its tag in braces", ".github/workflows/tea.yml", readOnly + "  - {name: tea, uses: a/b@v5}\n", "uses a/b@v5}; name the commit"},
		{"an action in a workflow of another ending", ".github/workflows/tea.yaml", readOnly + "  - uses: a/b@v5\n", "tea.yaml uses a/b@v5; name the commit"},
		{"a workflow with the default rights", ".github/workflows/tea.yml", "jobs:\n", "tea.yml does not limit its token"},
		{"a workflow that may write", ".github/workflows/tea.yml", "permissions:\n  contents: read\n  packages: write\njobs:\n", "tea.yml does not limit its token"},
		{"a job that may write", ".github/workflows/tea.yml", readOnly + "jobs:\n  tea:\n    permissions:\n      contents: write\n", "tea.yml does not limit its token"},
		{"a job that may write, in braces", ".github/workflows/tea.yml", readOnly + "jobs: {tea: {\"permissions\": write-all}}\n", "tea.yml does not limit its token"},
		{"a workflow for changes of strangers", ".github/workflows/tea.yml", readOnly + "on: pull_request_target\n", "tea.yml runs on pull_request_target"},
		{"an expression in a script", ".github/workflows/tea.yml", readOnly + "  - run: echo ${{ github.head_ref }}\n", "tea.yml writes ${{ github }} into a script"},
		{"an expression in a script of several lines", ".github/workflows/tea.yml", readOnly + "  - run: |\n      echo '${{ github.head_ref }}'\n", "tea.yml writes ${{ github }} into a script"},
		{"a module that Dependabot does not watch", "tools/tea/go.mod", "module tea\n", "the Go module in /tools/tea is not in"},
		{"npm packages that Dependabot does not watch", ".github/dependabot.yml", bot, "/ts has parts for which .github/dependabot.yml has no entry: npm"},
		{"an image that Dependabot does not watch", "attic/Dockerfile", "FROM debian:12\n", "/attic has parts for which .github/dependabot.yml has no entry: docker"},
		{"a Debian package that nobody lists", "croft_test.go", imports("croft", "testing") + "var _ = Program(t, \"gcc\", \"cc\")\n", "croft_test.go takes cc, which"},
		{"a Debian library that nobody lists", "croft_test.go", imports("croft", "testing") + "var _ = testenv.Package(t, \"venv\", nil)\n", "croft_test.go takes venv, which"},
		{"a Debian package of a workflow that nobody lists", ".github/workflows/tea.yml", readOnly + "  - run: apt-get install -qy rpm tea && true\n", "tea.yml takes tea, which"},
		{"an image that nobody lists", ".github/workflows/tea.yml", readOnly + "      image: tea:1\n", "tea.yml takes tea:1, which"},
		{"an action that nobody lists", ".github/workflows/tea.yml", readOnly + "  - uses: t/ea@fbc6f3992d24b796d5a048ff273f7fcc4a7b6c09 # v5\n", "tea.yml takes t/ea, which"},
		{"an npm package that nobody lists", "ts/package-lock.json", "{\"node_modules/@tea/pot\": {}}", "takes @tea/pot, which"},
		{"a README that names no target in a block", "README.md", sound["README.md"] + "```\nmake coffee\n```", "names `make coffee`"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if sound[c.file] == c.text {
				t.Fatal("this case changes nothing")
			}
			found := broken(t, write(t, sound, map[string]string{c.file: c.text}))
			if len(found) == 0 {
				t.Fatalf("not caught: %s holding\n%s", c.file, c.text)
			}
			for _, f := range found {
				if !strings.Contains(f, c.want) {
					t.Errorf("reported %q, want only reports with %q", f, c.want)
				}
			}
		})
	}
}

func TestLengthIsForgivenToTestsAndGeneratedFiles(t *testing.T) {
	long := strings.Repeat("// line\n", longest+1)
	report(t, broken(t, write(t, sound, map[string]string{
		"guard/long_test.go": imports("guard", "os") + long,
		"guard/made.go":      "// Code generated by a test. DO NOT EDIT.\n\n" + imports("guard", "os") + long,
	})))
}

func TestAMissingReadmeIsSaidPlainly(t *testing.T) {
	top := write(t, sound, nil)
	if err := os.Remove(filepath.Join(top, "README.md")); err != nil {
		t.Fatal(err)
	}
	found, err := brokenPromises(top)
	if err != nil || len(found) != 1 || !strings.Contains(found[0], "README.md is missing") {
		t.Errorf("found %q, %v; want one line saying that README.md is missing", found, err)
	}
}

func TestMachinePathsAreCaughtWhereAPathBegins(t *testing.T) {
	outer := t.TempDir()
	top, home := filepath.Join(outer, "croft"), filepath.Join(outer, "her home")
	private := filepath.ToSlash(outer)
	lines := map[string]bool{
		"see " + private + "/notes.md":                true,
		private + "/notes.md":                         true,
		"(" + private + "/croft/x)":                   true,
		"file://" + private + "/x":                    true,
		"HOME=" + filepath.ToSlash(home) + "/.config": true,
		"example.org" + private + "/x":                false,
		"${top}" + private + "/x":                     false,
		"**" + private + "/**":                        false,
		private + "-elsewhere/x":                      false,
		"/tmp/x":                                      false,
	}
	for line, private := range lines {
		if err := os.MkdirAll(top, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, "a.md"), []byte("first\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := privatePaths(top, home, []string{"a.md", "deleted.md"})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(found) == 1 && strings.HasPrefix(found[0], "a.md:2: "); got != private || len(found) > 1 {
			t.Errorf("%q: found %q, want a report of line 2: %v", line, found, private)
		}
	}
	if found, err := privatePaths("/tmp/croft", "/", []string{}); err != nil || found != nil {
		t.Errorf("folders every machine has: found %q, %v", found, err)
	}
}

package main

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// small is a module that calls one function of the standard library.
var small = map[string]string{
	"go.mod":   "module example.org/small\n\ngo 1.26\n",
	"small.go": "package small\n\nimport \"unicode/utf8\"\n\nfunc Len(r rune) int { return utf8.RuneLen(r) }\n",
}

// clean is a database that knows nothing of that function. Like every copy, it
// knows one old vulnerability elsewhere.
var clean = map[string]string{
	"index/db.json":        changed(time.Now()),
	"index/modules.json":   "[" + listed("golang.org/x/text", "GO-2021-0113") + "]",
	"ID/GO-2021-0113.json": entry("GO-2021-0113", "golang.org/x/text", "golang.org/x/text/language", "Parse"),
}

// unclean also knows a vulnerability in that function. It is made up.
var unclean = map[string]string{
	"index/db.json": clean["index/db.json"],
	"index/modules.json": "[" + listed("golang.org/x/text", "GO-2021-0113") + "," +
		listed("stdlib", "GO-2026-9999") + "]",
	"ID/GO-2021-0113.json": clean["ID/GO-2021-0113.json"],
	"ID/GO-2026-9999.json": entry("GO-2026-9999", "stdlib", "unicode/utf8", "RuneLen"),
}

// changed is a database's statement of when it last changed.
func changed(at time.Time) string {
	return fmt.Sprintf(`{"modified":%q}`, at.UTC().Format(time.RFC3339))
}

// with returns a copy of a tree with more files.
func with(files, more map[string]string) map[string]string {
	files = maps.Clone(files)
	maps.Copy(files, more)
	return files
}

// listed is a database's list of the vulnerabilities of a module.
func listed(module, id string) string {
	return fmt.Sprintf(`{"path":%q,"vulns":[{"id":%q,"modified":"2026-01-01T00:00:00Z"}]}`, module, id)
}

// entry is a database's entry for a vulnerability in one function.
func entry(id, module, pkg, symbol string) string {
	return fmt.Sprintf(`{"schema_version":"1.3.1","id":%q,"modified":"2026-01-01T00:00:00Z",
		"published":"2026-01-01T00:00:00Z","summary":"For a test","details":"For a test",
		"affected":[{"package":{"name":%q,"ecosystem":"Go"},
		"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
		"ecosystem_specific":{"imports":[{"path":%q,"symbols":[%q]}]}}],
		"database_specific":{"url":"https://pkg.go.dev/vuln/%s"}}`, id, module, pkg, symbol, id)
}

// vuln runs the command on modules with a database.
func vuln(t *testing.T, url string, modules map[string]string) (status int, out string) {
	t.Helper()
	program := testenv.Built(t, "govulncheck", "golang.org/x/vuln/cmd/govulncheck")
	var said strings.Builder
	status = command(t.Context(), []string{"-govulncheck", program, "-db", url, "-top", tree(t, modules)}, &said, &said)
	return status, said.String()
}

func TestNothingSeemsCheckedWithoutADatabase(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>Please log in to this network</html>"))
	}))
	defer page.Close()
	silent := tree(t, with(clean, map[string]string{"index/modules.json": "[]"}))
	old := tree(t, with(clean, map[string]string{"index/db.json": changed(time.Now().AddDate(0, 0, -31))}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	for name, url := range map[string]string{
		"a port that nobody listens at":          "http://" + listener.Addr().String(),
		"a network that answers all with a page": page.URL,
		"a folder that is not there":             "file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "none")),
		"a database that knows nothing":          "file://" + filepath.ToSlash(silent),
		"a database of last month":               "file://" + filepath.ToSlash(old),
		"an empty folder":                        "file://" + filepath.ToSlash(t.TempDir()),
	} {
		status, out := vuln(t, url, small)
		if status != exitNotChecked || !strings.Contains(out, "NOT CHECKED") {
			t.Errorf("%s: status %d, said %s", name, status, out)
		}
		if strings.Contains(out, "none calls") || strings.Contains(out, "No vulnerabilities") {
			t.Errorf("%s: seems green: %s", name, out)
		}
	}
}

func TestAVulnerabilityIsFound(t *testing.T) {
	status, out := vuln(t, "file://"+filepath.ToSlash(tree(t, unclean)), small)
	if status != exitFound || !strings.Contains(out, "GO-2026-9999") || !strings.Contains(out, "vuln: FOUND") {
		t.Errorf("status %d, said %s", status, out)
	}
}

func TestAModuleWithoutVulnerabilitiesPasses(t *testing.T) {
	status, out := vuln(t, "file://"+filepath.ToSlash(tree(t, clean)), small)
	if status != 0 || !strings.Contains(out, "vuln: looked at every module: none calls") {
		t.Errorf("status %d, said %s", status, out)
	}
}

// Linux does not see the files of a Windows release, though it may build it. So
// every system must be scanned.
func TestEverySystemIsLookedAt(t *testing.T) {
	code, err := os.ReadFile(filepath.Join("..", "dist", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	built := regexp.MustCompile(`(?m)^\t\{"(\w+)", "\w+"\},$`).FindAllSubmatch(code, -1)
	if len(built) == 0 {
		t.Error("tools/dist/main.go lists no platform as it did")
	}
	for _, m := range built {
		if !slices.Contains(systems, string(m[1])) {
			t.Errorf("releases are built for %s, which is not looked at", m[1])
		}
	}
	for _, system := range systems {
		modules := map[string]string{
			"go.mod": small["go.mod"], "doc.go": "package small\n", "small_" + system + ".go": small["small.go"],
		}
		status, out := vuln(t, "file://"+filepath.ToSlash(tree(t, unclean)), modules)
		if status != exitFound || !strings.Contains(out, "GO-2026-9999") {
			t.Errorf("%s: status %d, said %s", system, status, out)
		}
	}
}

// TestAModuleOfAWorkspaceIsLookedAt: go.work has two modules, and the function
// is called in the one below the top.
func TestAModuleOfAWorkspaceIsLookedAt(t *testing.T) {
	modules := map[string]string{
		"go.work": "go 1.26\n\nuse (\n\t.\n\t./below\n)\n",
		"go.mod":  "module example.org/top\n\ngo 1.26\n", "top.go": "package top\n",
		"below/go.mod": small["go.mod"], "below/small_windows.go": small["small.go"], "below/doc.go": "package small\n",
	}
	status, out := vuln(t, "file://"+filepath.ToSlash(tree(t, unclean)), modules)
	if status != exitFound || !strings.Contains(out, "GO-2026-9999") {
		t.Errorf("status %d, said %s", status, out)
	}
}

func TestAModuleOfWhichNothingIsBuiltIsNotChecked(t *testing.T) {
	modules := with(small, map[string]string{"tools/none/go.mod": "module example.org/none\n\ngo 1.26\n"})
	status, out := vuln(t, "file://"+filepath.ToSlash(tree(t, clean)), modules)
	if status != exitFound || !strings.Contains(out, "vuln: NOT CHECKED, as above: ") || strings.Contains(out, "none calls") {
		t.Errorf("status %d, said %s", status, out)
	}
}

// TestEveryModuleIsLookedAt makes sure that a new module is not left out.
func TestEveryModuleIsLookedAt(t *testing.T) {
	top := filepath.Join("..", "..")
	got, err := findModules(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{
		".", "backend/redis", "bench", "cmd/croft", "tools/etcd", "tools/gcs", "tools/govulncheck", "tools/lint", "tools/nfpm", "tools/oscheck", "tools/versitygw",
	} {
		if !slices.Contains(got, filepath.Join(top, dir)) {
			t.Errorf("%s is passed over; got %q", dir, got)
		}
	}
	for dir, want := range map[string]bool{".": true, "bench": true, "tools/lint": true, "tools/govulncheck": false} {
		if has, err := hasPackages(filepath.Join(top, dir)); err != nil || has != want {
			t.Errorf("%s: has packages of its own: %v (%v), want %v", dir, has, err, want)
		}
	}
}

// tree writes files to a folder and returns it.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for name, text := range files {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

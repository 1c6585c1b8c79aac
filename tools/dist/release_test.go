package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes archives compress fast: with the race detector, compression
// took half of the time of these tests, and no test looks at a size.
func TestMain(m *testing.M) {
	level = gzip.BestSpeed
	os.Exit(m.Run())
}

// host is the platform of this machine.
var host = platform{runtime.GOOS, runtime.GOARCH}

// tagged and untagged are origins of builds in tests.
var (
	tagged = origin{
		version: "v1.2.3", commit: "0123456789abcdef0123456789abcdef01234567",
		date: time.Date(2026, time.January, 31, 8, 0, 0, 0, time.UTC),
	}
	untagged = origin{version: "v1.2.3-dev+unknown", date: undated}
)

// TestRelease builds croft for this platform, as a release does, and checks the
// files.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds croft three times")
	}
	t.Parallel()
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "second-folder")
	copySource(t, top, second)
	binary := filepath.Join(t.TempDir(), host.program())
	if err := build(t.Context(), top, host, tagged, binary, compiledTwice(tagged)...); err != nil {
		t.Fatal(err)
	}

	t.Run("another folder gives the same bytes", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), host.program())
		if err := build(t.Context(), second, host, tagged, again, compiledTwice(tagged)...); err != nil {
			t.Fatal(err)
		}
		if !sameBytes(t, binary, again) {
			t.Error("two folders with the same source gave different binaries")
		}
	})

	t.Run("another folder gives the same build ID", func(t *testing.T) {
		action, content := buildID(t, top, "./cmd/croft", nil)
		if a, c := buildID(t, second, "./cmd/croft", nil); a != action || c != content {
			t.Errorf("%s/%s and %s/%s", action, content, a, c)
		}
	})

	t.Run("the binary names no folder of this machine", func(t *testing.T) {
		content := read(t, binary)
		for _, folder := range []string{top, second, goEnv(t, "GOMODCACHE"), goEnv(t, "GOROOT") + "/src"} {
			if bytes.Contains(content, []byte(filepath.ToSlash(folder)+"/")) {
				t.Errorf("%s is in the binary", folder)
			}
		}
	})

	t.Run("the binary knows its version, commit and date", func(t *testing.T) {
		checkVersion(t, exec.CommandContext(t.Context(), binary, "--version"))
	})

	// The slim binary shows as much of packages and image as the whole one, and
	// is compressed in a third of the time.
	small := filepath.Join(t.TempDir(), host.program())
	if err := build(t.Context(), top, host, tagged, small, slim.flags...); err != nil {
		t.Fatal(err)
	}
	r := releaser{top: top, origin: tagged, completions: t.TempDir(), out: t.TempDir()}
	if err := writeCompletions(t.Context(), binary, r.completions); err != nil {
		t.Fatal(err)
	}
	t.Run("packages install a croft with manual, completions and units", func(t *testing.T) { checkPackages(t, r, small) })
	t.Run("the image needs nothing but its own files", func(t *testing.T) { checkImage(t, r, small) })

	t.Run("the SBOM lists every module of the binary", func(t *testing.T) {
		bill := readBill(t, binary, tagged.version)
		if c := bill.Metadata.Component; c.Version != tagged.version || c.Hashes[0].Content != sum(t, binary) {
			t.Errorf("the SBOM is of %s %v", c.Version, c.Hashes)
		}
		checkModules(t, bill, binary, string(read(t, filepath.Join(top, "cmd", "croft", "go.sum"))))
	})
}

// compiledTwice are flags that make the second folder compile Croft's packages
// again. With -trimpath the build cache would serve both folders from one
// compilation, and equal bytes would show little.
//
// The pattern is relative to the folder of the build: it matches all packages
// in second-folder and none in another. -c sets how many functions are compiled
// at a time, and must not change the result. Modules of others lie in one
// folder for both builds: the cache serves them.
//
// The build ID is a hash that -c changes. So it is set here, and compared by
// itself for builds without -c.
func compiledTwice(o origin) []string {
	return []string{"-gcflags=../second-folder/...=-c=1", "-ldflags=" + linkerFlags(o) + " -buildid=fixed"}
}

// buildID returns the two parts of a package's build ID. The first is a hash of
// all inputs of its compilation, under which the cache keeps it. The second is
// a hash of the result.
func buildID(t *testing.T, top, pkg string, more []string) (action, content string) {
	t.Helper()
	args := append(flags(untagged), more...)
	args = append(args, "-export", "-f", "{{.BuildID}}", pkg)
	out := goSays(t, top, "list", args...)
	action, content, ok := strings.Cut(out, "/")
	if !ok || action == "" || content == "" {
		t.Fatalf("not a build ID: %q", out)
	}
	return action, content
}

// goSays runs the go command as a release does, and returns its output.
func goSays(t *testing.T, top, verb string, args ...string) string {
	t.Helper()
	cmd, err := goCommand(t.Context(), top, host, verb, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// checkModules compares an SBOM with the go command's list of modules in the
// binary, and its hashes with go.sum. Croft's own modules have no hash.
func checkModules(t *testing.T, bill *sbom, binary, goSum string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules, own := 0, 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "dep" {
			continue
		}
		modules++
		path, version := fields[1], fields[2]
		at := slices.IndexFunc(bill.Components, func(c component) bool { return c.Name == path })
		if at < 0 {
			t.Errorf("%s is missing", path)
			continue
		}
		c := bill.Components[at]
		if version == workspace {
			own++
			if c.Version != bill.Metadata.Component.Version || len(c.Hashes) > 0 {
				t.Errorf("%s: got %+v, want the version of the release, and no hash", path, c)
			}
			continue
		}
		if len(fields) != 4 {
			t.Errorf("not a module with its hash: %s", line)
			continue
		}
		sum := fields[3]
		if c.Version != version || len(c.Hashes) != 1 || c.Properties[0].Value != sum {
			t.Errorf("%s: got %+v, want %s %s", path, c, version, sum)
		}
		if !strings.Contains(goSum, path+" "+version+" "+sum+"\n") {
			t.Errorf("%s: go.sum does not have %s", path, sum)
		}
	}
	if modules < 10 {
		t.Errorf("the go command names %d modules: are they read as it writes them?\n%s", modules, out)
	}
	if own < 2 {
		t.Errorf("the go command names %d modules of the workspace: are they read as it writes them?\n%s", own, out)
	}
	if len(bill.Components) != modules+1 { // one more for the standard library
		t.Errorf("%d components, want %d", len(bill.Components), modules+1)
	}
}

// TestUntrimmedPathsAreNoticed is a test of TestRelease: a build that does not
// trim paths must not pass its comparison.
func TestUntrimmedPathsAreNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds four programs")
	}
	t.Parallel()
	same := func(more ...string) bool {
		more = append(compiledTwice(untagged), more...)
		top, first := small(t, "first-folder", more...)
		other, second := small(t, "second-folder", more...)
		action, _ := buildID(t, top, "./cmd/croft", more)
		if again, _ := buildID(t, other, "./cmd/croft", more); action == again {
			t.Errorf("%q: the cache serves both folders: the second one compiles nothing and shows nothing", more)
		}
		return sameBytes(t, first, second)
	}
	if !same() {
		t.Error("with trimmed paths the binaries differ")
	}
	if same("-trimpath=false") {
		t.Error("without trimmed paths the binaries are equal: the comparison sees nothing")
	}
}

func TestTheArchiveHoldsBinaryManualAndCompletions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds a program")
	}
	t.Parallel()
	top, binary := small(t, "folder")
	r := releaser{top: top, origin: tagged, completions: filepath.Join(top, "scripts"), out: t.TempDir()}
	for _, c := range []struct {
		v    variant
		p    platform
		stem string
		more []string
	}{
		{whole, platform{"linux", "amd64"}, "croft_v1.2.3_linux_amd64", []string{
			"croft", "man/croft.1", "deploy/README.md", "deploy/crontab", "deploy/serve-setup", "deploy/systemd/croft@.service",
		}},
		{slim, platform{"linux", "arm64"}, "croft-slim_v1.2.3_linux_arm64", []string{
			"croft", "man/croft.1", "deploy/README.md", "deploy/crontab", "deploy/serve-setup", "deploy/systemd/croft@.service",
		}},
		{whole, platform{"darwin", "arm64"}, "croft_v1.2.3_darwin_arm64", []string{"croft", "man/croft.1"}},
		{whole, platform{"windows", "arm64"}, "croft_v1.2.3_windows_arm64", []string{"croft.exe"}},
	} {
		files, err := r.pack(c.v, c.p, binary)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(files, []string{c.stem + c.p.archiveType(), c.stem + ".cdx.json"}) {
			t.Fatalf("made %q", files)
		}
		got := unpack(t, filepath.Join(r.out, files[0]))
		want := append([]string{"LICENSE", "README.md", "CHANGELOG.md", "completions/_croft"}, c.more...)
		for i := range want {
			want[i] = c.stem + "/" + want[i]
		}
		slices.Sort(want)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			t.Errorf("the archive holds %q, want %q", names, want)
		}
		if got[c.stem+"/"+c.p.program()] != string(read(t, binary)) || got[c.stem+"/LICENSE"] != "LICENSE\n" {
			t.Errorf("%s holds other content", files[0])
		}
		bill, err := readSBOM(binary, "v1.2.3")
		if err != nil || !bytes.Equal(bill, read(t, filepath.Join(r.out, files[1]))) {
			t.Errorf("the SBOM beside it is another (%v)", err)
		}
	}
}

// small builds a small program as a release, in a folder of this name.
func small(t *testing.T, folder string, more ...string) (top, binary string) {
	t.Helper()
	top = filepath.Join(t.TempDir(), folder)
	write(t, filepath.Join(top, "go.mod"), "module example.org/small\n\ngo 1.26\n")
	write(t, filepath.Join(top, "go.work"), "go 1.26\n\nuse .\n")
	write(t, filepath.Join(top, "cmd", "croft", "main.go"), "package main\n\nfunc main() { println(\"small\") }\n")
	for _, name := range []string{
		"LICENSE", "README.md", "CHANGELOG.md", "docs/man/croft.1", "scripts/_croft",
		"deploy/README.md", "deploy/crontab", "deploy/serve-setup", "deploy/systemd/croft@.service",
	} {
		write(t, filepath.Join(top, filepath.FromSlash(name)), name+"\n")
	}
	binary = filepath.Join(t.TempDir(), host.program())
	if err := build(t.Context(), top, host, untagged, binary, more...); err != nil {
		t.Fatal(err)
	}
	return top, binary
}

// copySource copies the files under version control, and new ones.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = from
	out, err := git.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v: this test copies the files under version control, so run it in a clone", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(to, name), string(content))
	}
}

// unpack returns the contents of an archive by name.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	got := map[string]string{}
	keep := func(name string, r io.Reader) {
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(content)
	}
	if strings.HasSuffix(path, ".zip") {
		archive, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		for _, f := range archive.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			keep(f.Name, r)
		}
		return got
	}
	zipped, err := gzip.NewReader(bytes.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		keep(header.Name, archive)
	}
}

func readBill(t *testing.T, binary, version string) *sbom {
	t.Helper()
	text, err := readSBOM(binary, version)
	if err != nil {
		t.Fatal(err)
	}
	var bill sbom
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	return &bill
}

func sameBytes(t *testing.T, a, b string) bool {
	t.Helper()
	return bytes.Equal(read(t, a), read(t, b))
}

func sum(t *testing.T, file string) string {
	t.Helper()
	s, err := sumFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

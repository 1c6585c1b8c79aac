package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The user's file goes by the password database, as the default store does.
func TestTheUsersConfigDoesNotDependOnTheEnvironment(t *testing.T) {
	home, err := HomeDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if got, want := userConfig(), filepath.Join(home, ".config", "croft", "croft.toml"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The way up from a working directory that was reached by a link is the way of
// the folder itself. PWD is the caller's, and may name any folder.
func TestTheWayUpToAProjectDoesNotDependOnLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, elsewhere := filepath.Join(top, "project", "sub"), filepath.Join(top, "elsewhere")
	for _, dir := range []string{real, elsewhere} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(dir, ttl string) {
		text := "[keys.\"\"]\nttl = \"" + ttl + "\"\n"
		if err := os.WriteFile(filepath.Join(dir, configName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Dir(real), "5m")
	write(elsewhere, "6m")
	link := filepath.Join(elsewhere, "link")
	if err := os.Symlink(real, link); err != nil {
		t.Skipf("NOT TESTED: no links here: %v", err)
	}
	t.Chdir(link)
	t.Setenv("PWD", link)
	p := project{}
	file, err := p.find()
	if err != nil || file == nil || file.keys[""].ttl.Value != 5*time.Minute {
		t.Errorf("found %+v, %v; want the file in %s", file, err, filepath.Dir(real))
	}
}

func TestTheLongestPrefixDecidesEachSettingByItself(t *testing.T) {
	files := make([]*configFile, 2)
	for i, text := range []string{
		"[keys.\"\"]\nttl = \"1m\"\nguards = [\"/all/{key}\"]\n[keys.\"a/\"]\nttl = \"2m\"\n",
		"[keys.\"a/\"]\nttl = \"9m\"\nevery = \"1d\"\n[keys.\"a/b\"]\nttl = \"3m\"\nguards = []\n[keys.\"a/b/c\"]\nevery = \"once\"\n",
	} {
		files[i] = &configFile{path: "/f" + strconv.Itoa(i), kind: fromNamed}
		if err := files[i].parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	c := &Config{files: files}
	for key, want := range map[string]string{
		"x":     "1m0s /f0:2, none, [/all/x] /f0:3",
		"a":     "1m0s /f0:2, none, [/all/a] /f0:3",
		"a/x":   "2m0s /f0:5, 24h0m0s /f1:3, [/all/a/x] /f0:3",
		"a/b":   "3m0s /f1:5, 24h0m0s /f1:3, [] /f1:6",
		"a/bb":  "3m0s /f1:5, 24h0m0s /f1:3, [] /f1:6",
		"a/b/c": "3m0s /f1:5, once /f1:8, [] /f1:6",
	} {
		d := c.Of(key)
		every := "none"
		if d.Every != nil {
			every = Period(d.Every.Value) + " " + d.Every.From.Where
		}
		got := d.TTL.Value.String() + " " + d.TTL.From.Where + ", " + every + ", [" +
			strings.Join(d.Guards.Value, " ") + "] " + d.Guards.From.Where
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// A key must not choose another server, bucket or query than the template does.
func TestAKeyCannotChangeWhatAGuardsTemplateMeans(t *testing.T) {
	for _, c := range [][3]string{
		{"/out/{key}.json", "a/b c?#%", "/out/a/b c?#%.json"},
		{"s3://bucket/{key}", "a?endpoint=http:/evil/b", "s3://bucket/a%3Fendpoint=http:/evil/b"},
		{"redis://h/0#{key}", "a#b@c", "redis://h/0#a%23b@c"},
		{"s3://bucket/fixed", "a", "s3://bucket/fixed"},
	} {
		if got := fillKey(c[0], c[1]); got != c[2] {
			t.Errorf("%s with %q: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// Whatever a file holds, croft reads it or says at which line it is wrong.
func FuzzConfigFile(f *testing.F) {
	f.Add("store = \"prod\"\n[stores]\nprod = \"/srv\"\n[keys.\"a/\"]\nttl = \"5m\"\nguards = [\"x/{key}\"]\n")
	f.Add("keys = { a = { every = \"once\" } }\nraise = [\"/a\", \"s3://b/c\"]\ntrust = []\n")
	f.Add("[[keys]]\n")
	f.Add("keys.a.b.c = {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := &configFile{path: "/croft.toml", kind: fromNamed}
		err := c.parse([]byte(text))
		if err == nil {
			_ = (&Config{files: []*configFile{c}}).Of("a/b")
			return
		}
		_, rest, found := strings.Cut(err.Error(), "/croft.toml:")
		number, _, _ := strings.Cut(rest, ":")
		line, bad := strconv.Atoi(number)
		if !found || bad != nil || line < 1 || line > bytes.Count([]byte(text), []byte("\n"))+1 {
			t.Errorf("%q: no line in %v", text, err)
		}
	})
}

// TestAConfigBelowAFolderOfOthersIsNotRead: others could put another file in
// its place, in a folder above it or on the way of a link.
func TestAConfigBelowAFolderOfOthersIsNotRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("owners are not checked there")
	}
	mkdir := func(path string, mode os.FileMode) string {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	write := func(folder string) string {
		path := filepath.Join(mkdir(folder, 0o755), configName)
		if err := os.WriteFile(path, []byte("store = \"/srv/leases\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	home := t.TempDir()
	good := write(filepath.Join(home, "good", "croft"))
	open := write(filepath.Join(mkdir(filepath.Join(home, "open"), 0o777), "croft"))
	link := filepath.Join(mkdir(filepath.Join(home, "linked"), 0o755), configName)
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	sticky := write(filepath.Join(mkdir(filepath.Join(home, "sticky"), 0o777|os.ModeSticky), "croft"))
	for path, want := range map[string]bool{good: true, sticky: true, open: false, link: false} {
		var c Config
		if err := c.readOwn(path, fromUser); (err == nil) != want || want != (len(c.files) == 1) {
			t.Errorf("%s: read %d files, %v", path, len(c.files), err)
		}
	}
}

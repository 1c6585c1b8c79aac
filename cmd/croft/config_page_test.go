package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// configPage runs the example of the page, at home in $WORK/home/ann.
const configPage = `
env CROFT_STORE=
env SCRIPT_HOME=$WORK/home/ann
exec sh -c 'sed -i s,/home/ann,$WORK/home/ann, home/ann/.config/croft/croft.toml'
cd home/ann/reports
exec croft config show reports/hourly
cp stdout $WORK/shown
exec mkdir -p out/reports
exec croft run reports/hourly -- true
exists out/reports/hourly.json.fence
exec croft run reports/hourly -- true
stderr 'not your turn'
exec croft run reports/hourly --every 0s --guard none -- true
exits 2 croft --store prdo ls
stderr 'known are here, prod'
samelines $WORK/shown $WORK/page
`

// TestTheExampleOfTheConfigurationPageWorks: the files, and what croft prints.
func TestTheExampleOfTheConfigurationPageWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	after := func(mark string) string {
		_, block, found := strings.Cut(string(page), mark)
		block, _, closed := strings.Cut(block, "```\n")
		if !found || !closed {
			t.Fatalf("the page has no %q", mark)
		}
		return block
	}
	script := configPage +
		"-- home/ann/.config/croft/croft.toml --\n" + after("Your file, `~/.config/croft/croft.toml`:\n\n```toml\n") +
		"-- home/ann/reports/croft.toml --\n" + after("The project's file, `/home/ann/reports/croft.toml`:\n\n```toml\n") +
		"-- page --\n" + after("$ croft config show reports/hourly\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := scripts(t, "", func(*testscript.Env) {})
	p.Dir = dir
	spaces := regexp.MustCompile(` +`)
	p.Cmds["samelines"] = func(ts *testscript.TestScript, _ bool, args []string) {
		got := strings.ReplaceAll(ts.ReadFile(args[0]), ts.Getenv("WORK")+"/home/ann/../etc", "/etc")
		got = strings.ReplaceAll(got, ts.Getenv("WORK")+"/home/etc", "/etc")
		got = strings.ReplaceAll(got, ts.Getenv("WORK"), "")
		if got, want := spaces.ReplaceAllString(got, " "), spaces.ReplaceAllString(ts.ReadFile(args[1]), " "); got != want {
			ts.Fatalf("croft prints\n%s\nthe page has\n%s", got, want)
		}
	}
	testscript.Run(t, p)
}

package main

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/backends"
	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// Release builds set these: -ldflags "-X main.version=v1.2.3 -X main.commit=…
// -X main.date=…". Otherwise the go command has recorded them.
var version, commit, date string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: cli.GroupTool,
		Short:   "Print the version, how it was built, and what it can open",
		Example: "  croft version\n  croft version --json",
		Args:    cli.Takes(),
		RunE: func(*cobra.Command, []string) error {
			a.version()
			return nil
		},
	}
}

// versionView is the build in JSON.
type versionView struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`
	Modified bool     `json:"modified"`
	Time     string   `json:"time"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Stores   []string `json:"stores"`
	Targets  []string `json:"targets"`
	Backends []string `json:"backends"`
	LeftOut  []string `json:"left_out"`
}

func (a *app) version() {
	v := built()
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintln(a.Stdout, v.line())
	fmt.Fprintf(a.Stdout, "built    %s, %s\n", v.Go, v.Platform)
	fmt.Fprintf(a.Stdout, "stores   %s\n", strings.Join(v.Stores, ", "))
	fmt.Fprintf(a.Stdout, "targets  %s\n", strings.Join(v.Targets, ", "))
	fmt.Fprintf(a.Stdout, "backends %s\n", strings.Join(v.Backends, ", "))
	if len(v.LeftOut) > 0 {
		fmt.Fprintf(a.Stdout, "left out %s\n", strings.Join(v.LeftOut, ", "))
	}
}

// built reads what the go command has recorded in the binary.
func built() versionView { return builtFrom(debug.ReadBuildInfo()) }

func builtFrom(info *debug.BuildInfo, ok bool) versionView {
	v := versionView{
		Version: version, Commit: commit, Time: date, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Stores:   store.Schemes(), Targets: guard.Schemes(),
		Backends: backends.In(), LeftOut: backends.LeftOut(),
	}
	if !ok {
		info = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "development"
	}
	if v.Commit != "" {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	// "go install …@main" knows the commit by the version alone.
	if m := pseudo.FindStringSubmatch(info.Main.Version); m != nil && v.Commit == "" {
		if at, err := time.Parse("20060102150405", m[1]); err == nil {
			v.Commit, v.Time = m[2], at.Format(time.RFC3339)
		}
	}
	return v
}

// pseudo finds the time and the commit in a version that Go makes of a commit.
var pseudo = regexp.MustCompile(`[-.](\d{14})-([0-9a-f]{12})(?:\+\w+)?$`)

// line is the build on one line, for --version.
func (v versionView) line() string {
	if v.Commit == "" {
		return "croft " + v.Version + " (commit not recorded)"
	}
	changed := ""
	if v.Modified {
		changed = ", with changes"
	}
	return fmt.Sprintf("croft %s (commit %.12s, %s%s)", v.Version, v.Commit, v.Time, changed)
}

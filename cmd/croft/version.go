package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// version is set by release builds: -ldflags "-X main.version=v1.2.3".
var version = ""

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
}

func (a *app) version() {
	v := built()
	if a.JSON {
		a.Print(v)
		return
	}
	fmt.Fprintf(a.Stdout, "croft %s\n", v.Version)
	if v.Commit != "" {
		changed := ""
		if v.Modified {
			changed = ", with changes"
		}
		fmt.Fprintf(a.Stdout, "commit   %s (%s%s)\n", v.Commit, v.Time, changed)
	}
	fmt.Fprintf(a.Stdout, "built    %s, %s\n", v.Go, v.Platform)
	fmt.Fprintf(a.Stdout, "stores   %s\n", strings.Join(v.Stores, ", "))
	fmt.Fprintf(a.Stdout, "targets  %s\n", strings.Join(v.Targets, ", "))
}

// built reads what the go command has recorded in the binary.
func built() versionView {
	v := versionView{
		Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Stores: store.Schemes(), Targets: guard.Schemes(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "development"
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
	return v
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// platform is an operating system and a processor, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// program returns the name of the binary on the platform.
func (p platform) program() string {
	if p.os == "windows" {
		return "croft.exe"
	}
	return "croft"
}

// archiveType returns the type of archive that the platform's users expect.
func (p platform) archiveType() string {
	if p.os == "windows" {
		return ".zip"
	}
	return ".tar.gz"
}

// build compiles cmd/croft for a platform, from the source in the folder top,
// into the file out. more are more flags of go build.
func build(ctx context.Context, top string, p platform, o origin, out string, more ...string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	args := append(flags(o), more...)
	cmd, err := goCommand(ctx, top, p, "build", append(args, "-o", out, "./cmd/croft")...)
	if err != nil {
		return err
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return nil
}

// flags are the flags of a release build:
//
//   - -trimpath keeps the paths of the source and of the module cache out.
//   - -buildvcs=false makes a clone and an unpacked source archive equal.
func flags(o origin) []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags=" + linkerFlags(o)}
}

// linkerFlags omits debugging data. The symbols stay, because govulncheck reads
// them. The origin goes where cmd/croft/version.go reads it.
func linkerFlags(o origin) string {
	text := "-w -X main.version=" + o.version
	if o.commit != "" {
		text += " -X main.commit=" + o.commit + " -X main.date=" + o.date.Format(time.RFC3339)
	}
	return text
}

// kept are settings of `go env -w` that a build needs and that change no byte:
// where modules come from, and where Go keeps its files.
var kept = []string{
	"GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOVCS", "GOAUTH",
	"GOPATH", "GOMODCACHE", "GOCACHE", "GOCACHEPROG", "GOTMPDIR", "GOTOOLCHAIN",
}

// goCommand returns a go command for a platform. Its environment has all
// settings that change the bytes, so that those of the shell do not matter.
// GOENV=off does the same for settings of `go env -w`. CGO_ENABLED=0 excludes
// the C compiler and the C library.
func goCommand(ctx context.Context, top string, p platform, verb string, args ...string) (*exec.Cmd, error) {
	ask := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, kept...)...)
	ask.Dir = top
	said, err := ask.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var settings map[string]string
	if err := json.Unmarshal(said, &settings); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	// The source's own go.work ties its modules together. They require versions
	// of each other that are published only with the release.
	workspace, err := filepath.Abs(filepath.Join(top, "go.work"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{verb}, args...)...)
	cmd.Dir = top
	cmd.Env = os.Environ()
	for _, name := range kept {
		cmd.Env = append(cmd.Env, name+"="+settings[name])
	}
	cmd.Env = append(cmd.Env,
		"GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFIPS140=off", "GOEXPERIMENT=", "GOENV=off",
		"GOFLAGS=-mod=readonly", "GOWORK="+workspace, "PWD="+top,
	)
	return cmd, nil
}

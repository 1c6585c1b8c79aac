package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	home    = "https://github.com/croft-dev/croft"
	summary = "Leases and fencing for background agents, scheduled jobs and pipelines"
)

// description describes a package to tools/nfpm. JSON is YAML, too.
type description struct {
	Name        string    `json:"name"`
	Platform    string    `json:"platform"`
	Arch        string    `json:"arch"`
	Version     string    `json:"version"`
	Section     string    `json:"section"`
	Priority    string    `json:"priority"`
	Maintainer  string    `json:"maintainer"`
	Description string    `json:"description"`
	Homepage    string    `json:"homepage"`
	License     string    `json:"license"`
	MTime       time.Time `json:"mtime"`
	NoGlobs     bool      `json:"disable_globbing"`
	Contents    []content `json:"contents"`
	RPM         struct {
		BuildHost string `json:"buildhost"`
		Summary   string `json:"summary"`
	} `json:"rpm"`
}

type content struct {
	From string `json:"src"`
	To   string `json:"dst"`
	Info struct {
		Mode  uint32    `json:"mode"`
		MTime time.Time `json:"mtime"`
		Owner string    `json:"owner"`
		Group string    `json:"group"`
	} `json:"file_info"`
}

// writePackage writes a package for Debian (.deb) or Red Hat (.rpm) to the
// file. nfpm is the program of tools/nfpm. The package has no scripts: it
// installs files, and starts nothing.
func writePackage(ctx context.Context, nfpm, file string, p platform, o origin, entries []entry) error {
	d := description{
		Name: "croft", Platform: p.os, Arch: p.arch, Version: o.version, Section: "utils", Priority: "optional",
		Maintainer: "The Croft authors <" + home + ">", Homepage: home, License: "Apache-2.0",
		MTime: o.date, NoGlobs: true,
		Description: summary + "\nUse leases to decide who may try. Use fencing to decide whose writes still\ncount. " +
			"The store is a directory, SQLite, PostgreSQL, Redis, etcd, S3 or Google\nCloud Storage.",
	}
	d.RPM.Summary, d.RPM.BuildHost = summary, "localhost" // the machine's own name would change the bytes
	for _, e := range entries {
		c := content{From: e.file, To: e.name}
		c.Info.Mode, c.Info.MTime, c.Info.Owner, c.Info.Group = uint32(e.mode.Perm()), o.date, "root", "root"
		d.Contents = append(d.Contents, c)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	described, err := os.CreateTemp("", "croft-dist-*.json")
	if err != nil {
		return err
	}
	defer os.Remove(described.Name())
	defer described.Close()
	if _, err := described.Write(text); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, nfpm, described.Name(), file)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.date.Unix()))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of %s: %w\n%s", filepath.Base(nfpm), file, err, strings.TrimSpace(string(said)))
	}
	return nil
}

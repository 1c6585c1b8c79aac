package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// entry is one file of an archive or a package.
type entry struct {
	name string // name in the archive, or path on the machine
	file string // path of its content
	mode fs.FileMode
}

// shells has the file of every shell's completion.
var shells = map[string]string{
	"bash": "croft.bash", "zsh": "_croft", "fish": "croft.fish", "powershell": "croft.ps1",
}

// writeCompletions runs a croft to write its completion scripts into a folder.
func writeCompletions(ctx context.Context, binary, folder string) error {
	for shell, name := range shells {
		script, err := exec.CommandContext(ctx, binary, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("croft completion %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), script, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// archiveFiles lists the files of a platform's archive.
func archiveFiles(top string, p platform, binary, completions string) ([]entry, error) {
	all := []entry{{p.program(), binary, 0o755}}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		all = append(all, entry{name, filepath.Join(top, name), 0o644})
	}
	folders := []struct{ name, glob string }{{"completions", filepath.Join(completions, "*")}}
	if p.os != "windows" {
		folders = append(folders, struct{ name, glob string }{"man", filepath.Join(top, "docs", "man", "*.1")})
	}
	if p.os == "linux" {
		folders = append(folders,
			struct{ name, glob string }{"deploy", filepath.Join(top, "deploy", "*.md")},
			struct{ name, glob string }{"deploy", filepath.Join(top, "deploy", "crontab")},
			struct{ name, glob string }{"deploy", filepath.Join(top, "deploy", "serve-setup")},
			struct{ name, glob string }{"deploy/systemd", filepath.Join(top, "deploy", "systemd", "*")})
	}
	for _, folder := range folders {
		more, err := inFolder(folder.name, folder.glob)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// packageFiles lists the files of a Linux package by their paths on the
// machine. It writes those that differ from the source to the folder work.
func packageFiles(top, kind, binary, completions, work string) ([]entry, error) {
	license, zsh := "/usr/share/doc/croft/copyright", "/usr/share/zsh/vendor-completions/_croft"
	if kind == "rpm" {
		license, zsh = "/usr/share/licenses/croft/LICENSE", "/usr/share/zsh/site-functions/_croft"
	}
	all := []entry{
		{"/usr/bin/croft", binary, 0o755},
		{license, filepath.Join(top, "LICENSE"), 0o644},
		{"/usr/share/doc/croft/README.md", filepath.Join(top, "README.md"), 0o644},
		{"/usr/share/doc/croft/CHANGELOG.md", filepath.Join(top, "CHANGELOG.md"), 0o644},
		{"/usr/share/doc/croft/deploy/README.md", filepath.Join(top, "deploy", "README.md"), 0o644},
		{"/usr/share/doc/croft/deploy/crontab", filepath.Join(top, "deploy", "crontab"), 0o644},
		{"/usr/share/doc/croft/deploy/serve-setup", filepath.Join(top, "deploy", "serve-setup"), 0o644},
		{"/usr/share/bash-completion/completions/croft", filepath.Join(completions, shells["bash"]), 0o644},
		{zsh, filepath.Join(completions, shells["zsh"]), 0o644},
		{"/usr/share/fish/vendor_completions.d/croft.fish", filepath.Join(completions, shells["fish"]), 0o644},
	}
	docs, err := inFolder("/usr/share/doc/croft/docs", filepath.Join(top, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	units, err := inFolder("/usr/lib/systemd/system", filepath.Join(top, "deploy", "systemd", "*"))
	if err != nil {
		return nil, err
	}
	pages, err := inFolder("/usr/share/man/man1", filepath.Join(top, "docs", "man", "*.1"))
	if err != nil {
		return nil, err
	}
	for i := range units {
		if err := units[i].change(work, atHome); err != nil {
			return nil, err
		}
	}
	for i := range pages {
		pages[i].name += ".gz"
		if err := pages[i].change(work, compress); err != nil {
			return nil, err
		}
	}
	all = append(all, docs...)
	all = append(all, units...)
	return append(all, pages...), nil
}

// inFolder lists the files that a pattern matches, below another folder.
func inFolder(folder, glob string) ([]entry, error) {
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no file is like %s: %w", glob, os.ErrNotExist)
	}
	all := make([]entry, 0, len(files))
	for _, file := range files {
		all = append(all, entry{folder + "/" + filepath.Base(file), file, 0o644})
	}
	return all, nil
}

// change makes a changed copy of the file the content of the entry.
func (e *entry) change(work string, how func([]byte) []byte) error {
	text, err := os.ReadFile(e.file)
	if err != nil {
		return err
	}
	e.file = filepath.Join(work, strings.ReplaceAll(e.name, "/", "_"))
	return os.WriteFile(e.file, how(text), 0o600)
}

// atHome names the croft of a package in a unit. The units of the source name
// /usr/local/bin, where an administrator puts croft by hand.
func atHome(unit []byte) []byte {
	return bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
}

// compress compresses without a name and a time. A buffer takes every write.
func compress(text []byte) []byte {
	var to bytes.Buffer
	w, _ := gzip.NewWriterLevel(&to, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return to.Bytes()
}

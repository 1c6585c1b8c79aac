package cli

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// project finds the project's file: croft.toml in the working directory or in
// the nearest folder above it.
//
// Somebody else may have put it there: another user of the machine, or the
// author of a repository that this user has cloned. So croft reads it only if
// nobody but this user and root can have changed it. And unless this user
// trusts the folder, it may name no place. Croft would send its user's
// credentials there.
type project struct {
	trust  []string
	own    []string // the files of the user and the system, which are no project's
	looked []LookedFile
}

// find returns the project's file, or nil if there is none.
func (p *project) find() (*configFile, error) {
	dir, err := os.Getwd()
	if err == nil {
		// The way up must not depend on PWD, nor on links.
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, nil // the working directory is gone: there is no project
	}
	here := LookedFile{Path: filepath.Join(dir, configName), Kind: fromProject, State: "absent"}
	for {
		path := filepath.Join(dir, configName)
		file, err := p.read(path)
		if err != nil || file != nil {
			return file, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			p.looked = append(p.looked, here)
			return nil, nil
		}
		dir = up
	}
}

// read reads the project's file if it is there.
func (p *project) read(path string) (*configFile, error) {
	found, is, err := visible(path)
	if err != nil || !is || p.isOwn(path) {
		return nil, refusedFile(path, err)
	}
	looked := LookedFile{Path: path, Kind: fromProject, State: "ignored"}
	trusted := p.trusts(filepath.Dir(path))
	// Anybody can put a file into /tmp. Failing because of it would let them
	// stop every croft that runs below.
	if owner := foreign(found); owner != "" && !trusted && anybodys(filepath.Dir(path)) {
		looked.Why = fmt.Sprintf("it belongs to %s, and everybody may write to %s", owner, filepath.Dir(path))
		p.looked = append(p.looked, looked)
		return nil, nil
	}
	text, info, err := readConfig(path, false)
	if err != nil {
		return nil, refusedFile(path, err)
	}
	owner, others := foreign(info), writers(info)
	switch {
	case owner != "" && !trusted:
		return nil, refusedFile(path, fmt.Errorf("it belongs to %s, who could choose your store; %s", owner,
			p.howToTrust(path)))
	case others == "everybody", others != "" && !trusted:
		return nil, refusedFile(path, fmt.Errorf("%s may write to it; run chmod go-w %s", others, Pasted(path)))
	}
	f := &configFile{path: path, kind: fromProject, secret: secret(info)}
	if err := f.parse(text); err != nil {
		return nil, err
	}
	if err := p.check(f, trusted); err != nil {
		return nil, err
	}
	looked.State = "read"
	p.looked = append(p.looked, looked)
	return f, nil
}

// isOwn reports whether a path is that of the user's or of the system's file.
func (p *project) isOwn(path string) bool {
	return slices.ContainsFunc(p.own, func(own string) bool {
		resolved, err := filepath.EvalSymlinks(filepath.Dir(own))
		return own == path || err == nil && filepath.Join(resolved, configName) == path
	})
}

// trusts reports whether the user trusts the project in a folder.
func (p *project) trusts(dir string) bool {
	return slices.ContainsFunc(p.trust, func(folder string) bool {
		folder, below := strings.CutSuffix(folder, "/*")
		folder, err := filepath.EvalSymlinks(folder)
		if err != nil {
			return false
		}
		if below {
			rel, err := filepath.Rel(folder, dir)
			return err == nil && filepath.IsLocal(rel) && rel != "."
		}
		return dir == folder
	})
}

// check refuses settings that do not belong into a project's file.
func (p *project) check(f *configFile, trusted bool) error {
	for _, list := range [][]Setting[string]{f.raise, f.trust} {
		if len(list) > 0 {
			what := "trust"
			if len(f.raise) > 0 {
				what = "raise"
			}
			return Invalid("configuration %s: a project cannot say %s, because its author may be another; move the "+
				"line to %s", list[0].From.Where, what, p.ownFile())
		}
	}
	if trusted {
		return nil
	}
	named := func(what string, from Origin) error {
		return Invalid("configuration %s: %s names a place, and croft would use your credentials there; %s",
			from.Where, what, p.howToTrust(f.path))
	}
	if f.store != nil && !storeName.MatchString(f.store.Value) {
		return named("store", f.store.From)
	}
	for _, name := range slices.Sorted(maps.Keys(f.stores)) {
		return named("stores."+name, f.stores[name].From)
	}
	for _, prefix := range slices.Sorted(maps.Keys(f.keys)) {
		guards := f.keys[prefix].guards
		if guards == nil {
			continue
		}
		what := dotted([]string{"keys", prefix, "guards"})
		if len(guards.Value) == 0 {
			return Invalid("configuration %s: %s takes your own guards away; %s",
				guards.From.Where, what, p.howToTrust(f.path))
		}
		return named(what, guards.From)
	}
	return nil
}

// howToTrust says what to do if the user trusts the project, and if not.
func (p *project) howToTrust(path string) string {
	instead := noConfig
	if own := p.ownFile(); filepath.IsAbs(own) {
		if _, err := os.Stat(own); err == nil {
			instead = Pasted(own) // with none, the user's own settings would not count either
		}
	}
	return fmt.Sprintf("if you trust it, put trust = [%q] into %s, else give --config %s",
		filepath.Dir(path), p.ownFile(), instead)
}

// ownFile is where the user's own settings go.
func (p *project) ownFile() string {
	for _, path := range p.own {
		if path != "" {
			return path
		}
	}
	return configName
}

// fillKey puts a key into the template of a guard's target. In a URL it escapes
// the key, so that the key cannot change what the URL means.
func fillKey(template, key string) string {
	if IsURL(template) {
		segments := strings.Split(key, "/")
		for i := range segments {
			segments[i] = url.PathEscape(segments[i])
		}
		key = strings.Join(segments, "/")
	}
	return strings.ReplaceAll(template, "{key}", key)
}

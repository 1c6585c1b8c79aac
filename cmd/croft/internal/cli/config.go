package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// configName is what a configuration file is called in every folder.
const configName = "croft.toml"

// noConfig, given for a file, means that croft reads no file.
const noConfig = "none"

// The kinds of files, and the other sources of values.
const (
	FromFlag    = "flag"
	FromEnv     = "environment"
	fromProject = "project"
	fromUser    = "user"
	fromSystem  = "system"
	fromNamed   = "named" // by --config or CROFT_CONFIG
	FromDefault = "default"
)

// SystemConfig is the file that holds for all users of the machine, or "".
// Windows has none: ordinary users can make folders in ProgramData.
var SystemConfig = func() string {
	if runtime.GOOS == "windows" {
		return ""
	}
	return "/etc/croft/" + configName
}

// userConfig is this user's own file, or "" without a home. It goes by the
// password database as the default store does, and not by XDG_CONFIG_HOME: cron
// and a shell must agree on the store.
func userConfig() string {
	home, err := HomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "croft", configName)
}

// LookedFile is a path at which croft has looked for a configuration file.
type LookedFile struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	State string `json:"state"` // read, absent or ignored
	Why   string `json:"why,omitempty"`
}

// Config is what the configuration files say. The nearest file is the first.
type Config struct {
	files  []*configFile
	Looked []LookedFile
}

// configOnce reads the files when the first command asks for them. Some
// commands ask on a goroutine that is left behind if a mount hangs.
type configOnce struct {
	once   sync.Once
	mu     sync.Mutex
	loaded *Config
	err    error
}

// Config returns what the configuration files say. It reads them once.
func (a *App) Config() (*Config, error) {
	a.config.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(2*a.Timeout, ListTimeout))
		defer cancel()
		loaded, err := within(ctx, "the configuration", func(context.Context, string) (*Config, error) {
			return a.loadConfig()
		})
		a.config.mu.Lock()
		a.config.loaded, a.config.err = loaded, err
		a.config.mu.Unlock()
		if err != nil || a.Quiet || !a.Started { // a completion has not started
			return
		}
		for _, l := range loaded.Looked {
			if l.Why != "" {
				fmt.Fprintf(a.Stderr, "croft: ignored %s: %s\n", Line(l.Path), Line(l.Why))
			}
		}
	})
	return a.config.loaded, a.config.err
}

// configSecrets returns the values of the files that were read, for Redact.
func (a *App) configSecrets() (values []string) {
	a.config.mu.Lock()
	defer a.config.mu.Unlock()
	if a.config.loaded == nil {
		return nil
	}
	for _, f := range a.config.loaded.files {
		if f.store != nil {
			values = append(values, f.store.Value)
		}
		for _, s := range f.stores {
			values = append(values, s.Value)
		}
		for _, s := range f.raise {
			values = append(values, s.Value)
		}
		for _, d := range f.keys {
			if d.guards != nil {
				values = append(values, d.guards.Value...)
			}
		}
	}
	return values
}

// loadConfig finds and reads the files.
func (a *App) loadConfig() (*Config, error) {
	named, origin := os.Getenv(EnvConfig), EnvConfig
	if a.ConfigGiven != nil && a.ConfigGiven() {
		named, origin = a.ConfigPath, "--config"
		if named == "" {
			return nil, Invalid("%s: it is empty; name a file, or %q to read none", origin, noConfig)
		}
	}
	c := &Config{}
	switch {
	case named == noConfig:
		return c, nil
	case origin == EnvConfig && named != "" && !filepath.IsAbs(named):
		return nil, Invalid("%s=%s: write the absolute path, because each program has a working directory of its own",
			EnvConfig, Word(named))
	case named != "":
		if err := c.readNamed(named, origin); err != nil {
			return nil, err
		}
		return c, nil
	}
	own := []string{userConfig(), SystemConfig()}
	for i, kind := range []string{fromUser, fromSystem} {
		if own[i] == "" {
			continue
		}
		if err := c.readOwn(own[i], kind); err != nil {
			return nil, err
		}
	}
	// The trust in a project comes from the files above, so it is read last.
	// But its settings come first.
	p := project{trust: c.trust(), own: own}
	file, err := p.find()
	c.Looked = append(p.looked, c.Looked...)
	if err != nil {
		return nil, err
	}
	if file != nil {
		c.files = append([]*configFile{file}, c.files...)
	}
	if err := c.checkStore(); err != nil {
		return nil, err
	}
	return c, nil
}

// readNamed reads the file that the user names. The user has chosen it, so it
// may belong to anybody.
func (c *Config) readNamed(path, origin string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return Invalid("%s: %v; give an absolute path", origin, err)
	}
	text, info, err := readConfig(path, true)
	if err != nil {
		return Invalid("%s %s: %v", origin, Word(path), plainError(err))
	}
	f := &configFile{path: path, kind: fromNamed, secret: secret(info)}
	if err := f.parse(text); err != nil {
		return err
	}
	c.files, c.Looked = []*configFile{f}, []LookedFile{{Path: path, Kind: fromNamed, State: "read"}}
	return c.checkStore()
}

// readOwn reads the file of the user or of the system. Nobody else may be able
// to change it, or to put another one in its place.
func (c *Config) readOwn(path, kind string) error {
	looked := LookedFile{Path: path, Kind: kind, State: "absent"}
	defer func() { c.Looked = append(c.Looked, looked) }()
	if _, is, err := visible(path); err != nil || !is {
		return refusedFile(path, err)
	}
	text, info, err := readConfig(path, true)
	if err != nil {
		return refusedFile(path, err)
	}
	if err := cmp.Or(changeable(path, info), replaceable(path)); err != nil {
		return refusedFile(path, err)
	}
	f := &configFile{path: path, kind: kind, secret: secret(info)}
	if err := f.parse(text); err != nil {
		return err
	}
	looked.State = "read"
	c.files = append(c.files, f)
	return nil
}

// changeable returns an error if somebody else can change a file or folder.
func changeable(path string, info fs.FileInfo) error {
	name := Word(path)
	if owner := foreign(info); owner != "" {
		return fmt.Errorf("%s belongs to %s; it must belong to you or to root", name, owner)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil // its owner alone can change a link
	}
	if others := writers(info); others != "" {
		return fmt.Errorf("%s may write to %s; run chmod go-w %s", others, name, Pasted(path))
	}
	return nil
}

// replaceable returns an error if somebody else can put another file in the
// place of this one: in a folder above it, or above the file that a link leads
// to. A sticky folder like /tmp is allowed above the first one.
func replaceable(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, way := range []string{path, resolved} {
		first := filepath.Dir(way)
		for at := first; ; at = filepath.Dir(at) {
			info, err := os.Lstat(at)
			if err != nil {
				return err
			}
			if at == first || info.Mode()&fs.ModeSticky == 0 {
				if err := changeable(at, info); err != nil {
					return err
				}
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return nil
}

// refusedFile is the error for a file that croft does not read. It is nil
// without a reason.
func refusedFile(path string, why error) error {
	if why == nil {
		return nil
	}
	return Invalid("configuration %s: %v", Word(path), plainError(why))
}

// plainError leaves out the path that the error of a system call repeats.
func plainError(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// trust returns the folders whose projects the user or the system trusts.
func (c *Config) trust() (folders []string) {
	for _, s := range c.Trust() {
		folders = append(folders, s.Value)
	}
	return folders
}

// checkStore refuses a default store by a name that no file defines.
func (c *Config) checkStore() error {
	s, given := c.store()
	if !given || !storeName.MatchString(s.Value) {
		return nil
	}
	if _, known := c.Stores()[s.Value]; known {
		return nil
	}
	return Invalid("configuration %s: %s; for a directory write ./%s", s.From.Where, c.noStore(s.Value), s.Value)
}

// noStore says that a word is the name of no store, and which there are.
func (c *Config) noStore(word string) string {
	names := slices.Sorted(maps.Keys(c.Stores()))
	if len(names) == 0 {
		return fmt.Sprintf("no file defines a store %q; define it in [stores]", word)
	}
	return fmt.Sprintf("no store is called %q; known are %s", word, strings.Join(names, ", "))
}

// store returns the default store of the nearest file that has one: a name, a
// path or a URL.
func (c *Config) store() (Setting[string], bool) {
	for _, f := range c.files {
		if f.store != nil {
			return *f.store, true
		}
	}
	return Setting[string]{}, false
}

// Stores returns the named stores. The nearest file that has a name defines it.
func (c *Config) Stores() map[string]Setting[string] {
	all := map[string]Setting[string]{}
	for _, f := range slices.Backward(c.files) {
		maps.Copy(all, f.stores)
	}
	return all
}

// Raise returns the places of all files where croft may raise the fence.
func (c *Config) Raise() (all []Setting[string]) {
	for _, f := range c.files {
		all = append(all, f.raise...)
	}
	return all
}

// Trust returns the trusted folders of all files.
func (c *Config) Trust() (all []Setting[string]) {
	for _, f := range c.files {
		all = append(all, f.trust...)
	}
	return all
}

// KeyDefaults are the settings for a key, or for all keys with a prefix.
type KeyDefaults struct {
	Prefix string
	TTL    *Setting[time.Duration]
	Every  *Setting[time.Duration]
	Guards *Setting[[]string]
}

// Prefixes returns the settings of every prefix, sorted by prefix. The nearest
// file that has a setting decides it.
func (c *Config) Prefixes() []KeyDefaults {
	all := map[string]KeyDefaults{}
	for _, f := range c.files {
		for prefix, d := range f.keys {
			have := all[prefix]
			all[prefix] = KeyDefaults{
				prefix, cmp.Or(have.TTL, d.ttl), cmp.Or(have.Every, d.every), cmp.Or(have.Guards, d.guards),
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b KeyDefaults) int { return cmp.Compare(a.Prefix, b.Prefix) })
}

// Of returns the settings for a key. Each comes from the longest prefix that
// has it.
func (c *Config) Of(key string) KeyDefaults {
	d := KeyDefaults{Prefix: key}
	// A longer prefix of the same key sorts behind a shorter one.
	for _, p := range slices.Backward(c.Prefixes()) {
		if strings.HasPrefix(key, p.Prefix) {
			d.TTL, d.Every, d.Guards = cmp.Or(d.TTL, p.TTL), cmp.Or(d.Every, p.Every), cmp.Or(d.Guards, p.Guards)
		}
	}
	if d.Guards != nil {
		filled := Setting[[]string]{From: d.Guards.From}
		for _, template := range d.Guards.Value {
			filled.Value = append(filled.Value, fillKey(template, key))
		}
		d.Guards = &filled
	}
	return d
}

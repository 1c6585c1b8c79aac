package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/registry"
	"github.com/croft-dev/croft/tenure"
)

// Origin says where a value comes from.
type Origin struct {
	Source string // flag, environment, project, user, system, named or default
	Where  string // the flag, the variable, or FILE:LINE
}

// Usual is the origin of a value that nothing sets.
var Usual = Origin{FromDefault, "default"}

// Setting is a value and its origin.
type Setting[T any] struct {
	Value T
	From  Origin
}

// keyDefaults are the settings for the keys with one prefix. A nil field is not
// set.
type keyDefaults struct {
	ttl    *Setting[time.Duration]
	every  *Setting[time.Duration]
	guards *Setting[[]string]
}

// configFile is one configuration file that was read.
type configFile struct {
	path string
	kind string // the Source of its settings
	// secret is true if others cannot read the file, so that it may hold
	// passwords.
	secret bool

	store  *Setting[string]
	stores map[string]Setting[string]
	keys   map[string]keyDefaults
	raise  []Setting[string]
	trust  []Setting[string]
}

// storeName is what a store in a configuration file may be called. A path of
// more than one segment, a URL and a hidden folder have another form.
var storeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)

// parse reads the content of a file. Every mistake is an error with its line.
func (f *configFile) parse(text []byte) error {
	// Unmarshal finds mistakes of syntax and double keys. The parser gives the
	// line of every value.
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		var wrong *toml.DecodeError
		if !errors.As(err, &wrong) {
			return Invalid("configuration %s: %v", f.path, err)
		}
		line, _ := wrong.Position()
		why := strings.TrimPrefix(wrong.Error(), "toml: ")
		if strings.HasSuffix(why, "at start of value") {
			why += "; put texts in quotes"
		}
		return f.wrong(line, "%s", why)
	}
	f.stores, f.keys = map[string]Setting[string]{}, map[string]keyDefaults{}
	p := &unstable.Parser{}
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		name, line := keyOf(p, e)
		var err error
		switch {
		case e.Kind == unstable.KeyValue:
			err = f.set(p, slices.Concat(table, name), line, e.Value())
		case e.Kind == unstable.Table && knownTable(name):
			table = name
		default: // also an array of tables
			err = f.unknown(name, line)
		}
		if err != nil {
			return err
		}
	}
	return p.Error()
}

// keyOf returns the parts of a dotted key, and its line.
func keyOf(p *unstable.Parser, n *unstable.Node) (parts []string, line int) {
	for keys := n.Key(); keys.Next(); {
		if line == 0 {
			line = p.Shape(keys.Node().Raw).Start.Line
		}
		parts = append(parts, string(keys.Node().Data))
	}
	return parts, line
}

func knownTable(name []string) bool {
	return len(name) == 1 && (name[0] == "stores" || name[0] == "keys") || len(name) == 2 && name[0] == "keys"
}

// set takes one setting.
func (f *configFile) set(p *unstable.Parser, name []string, line int, value *unstable.Node) error {
	if value.Kind == unstable.InlineTable && knownTable(name) {
		for entries := value.Children(); entries.Next(); {
			more, line := keyOf(p, entries.Node())
			if err := f.set(p, slices.Concat(name, more), line, entries.Node().Value()); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case len(name) == 1 && name[0] == "store":
		return f.setStore(line, value)
	case len(name) == 2 && name[0] == "stores":
		return f.setNamed(name[1], line, value)
	case len(name) == 3 && name[0] == "keys":
		return f.setDefault(name, line, value)
	case len(name) == 1 && (name[0] == "raise" || name[0] == "trust"):
		return f.setList(name[0], line, value)
	}
	return f.unknown(name, line)
}

func (f *configFile) setStore(line int, value *unstable.Node) error {
	text, err := f.text("store", line, value)
	if err != nil {
		return err
	}
	if !storeName.MatchString(text) {
		if text, err = f.absolute("store", line, text); err != nil {
			return err
		}
	}
	f.store = &Setting[string]{text, f.at(line)}
	return nil
}

func (f *configFile) setNamed(name string, line int, value *unstable.Node) error {
	what := "stores." + name
	switch {
	case !storeName.MatchString(name):
		return f.wrong(line, "a store cannot be called %q; use letters, digits, - and _, and begin with a letter", name)
	case name == noConfig:
		return f.wrong(line, "a store cannot be called %s, because that word means no store elsewhere", name)
	case value.Kind != unstable.String:
		return f.unknown([]string{"stores", name}, line)
	}
	text, err := f.text(what, line, value)
	if err != nil {
		return err
	}
	if text, err = f.absolute(what, line, text); err != nil {
		return err
	}
	f.stores[name] = Setting[string]{text, f.at(line)}
	return nil
}

// setDefault takes a setting of keys."PREFIX".
func (f *configFile) setDefault(name []string, line int, value *unstable.Node) error {
	prefix, what := name[1], dotted(name)
	if prefix != "" {
		if err := fence.CheckKey(prefix + "x"); err != nil {
			return f.wrong(line, "%q is the beginning of no key: %v", prefix, err)
		}
	}
	d := f.keys[prefix]
	var err error
	switch name[2] {
	case "ttl":
		d.ttl, err = f.duration(what, line, value, tenure.MinTTL, tenure.MaxTTL)
	case "every":
		d.every, err = f.duration(what, line, value, 0, tenure.MaxPeriod)
	case "guards":
		var targets []Setting[string]
		if targets, err = f.texts(what, line, value); err != nil {
			return err
		}
		d.guards = &Setting[[]string]{From: f.at(line)}
		for _, target := range targets {
			if err = f.checkTemplate(line, target.Value); err == nil {
				target.Value, err = f.target(what, line, target.Value)
			}
			if err != nil {
				return err
			}
			d.guards.Value = append(d.guards.Value, target.Value)
		}
	default:
		return f.unknown(name, line)
	}
	f.keys[prefix] = d
	return err
}

// setList takes raise or trust: places for raising, or folders of projects.
// Both lists add up over the files, so each entry has an origin of its own.
func (f *configFile) setList(what string, line int, value *unstable.Node) error {
	entries, err := f.texts(what, line, value)
	if err != nil {
		return err
	}
	for i, p := range entries {
		if entries[i].Value, err = f.absolute(what, line, p.Value); err != nil {
			return err
		}
		switch {
		case what == "trust" && IsURL(p.Value):
			return f.wrong(line, "trust names folders of this machine, and %q is a URL", registry.Redact(p.Value))
		case !IsURL(p.Value) && !filepath.IsAbs(p.Value) && !strings.HasPrefix(p.Value, "~/"):
			return f.wrong(line, "%s: write an absolute path or a URL", what) // the value may hold a password
		}
	}
	if what == "raise" {
		f.raise = entries
	} else {
		f.trust = entries
	}
	return nil
}

// checkTemplate refuses words in braces other than {key}. They belong to work
// items.
func (f *configFile) checkTemplate(line int, template string) error {
	for _, word := range regexp.MustCompile(`\{[a-z]+\}`).FindAllString(template, -1) {
		if word != "{key}" {
			return f.wrong(line, "guards: croft knows no %s; {key} stands for the key", word)
		}
	}
	return nil
}

// absolute makes a store's path independent of the working directory. A
// relative path begins at the folder of the file.
func (f *configFile) absolute(what string, line int, text string) (string, error) {
	if err := f.checkSecret(what, line, text); err != nil {
		return "", err
	}
	if rest, ofHome := strings.CutPrefix(text, "~/"); ofHome {
		home, err := HomeDir()
		if err != nil {
			return "", f.wrong(line, "%s: ~ stands for your home, and you have none: %v", what, err)
		}
		return filepath.Join(home, rest), nil
	}
	// Opening refuses a URL without its slashes.
	if IsURL(text) || strings.HasPrefix(text, "~") || registry.SchemeOf(text) != "" || filepath.IsAbs(text) {
		return text, nil
	}
	return filepath.Join(filepath.Dir(f.path), text), nil
}

// target does the same for a guarded resource. A file's name may have a colon.
func (f *configFile) target(what string, line int, text string) (string, error) {
	if !IsURL(text) && guard.IsFile(text) && !filepath.IsAbs(text) && !strings.HasPrefix(text, "~/") {
		text = "." + string(filepath.Separator) + text
	}
	return f.absolute(what, line, text)
}

// checkSecret refuses a password in a file that others can read.
func (f *configFile) checkSecret(what string, line int, text string) error {
	if f.secret || registry.Bare(text) == text {
		return nil
	}
	return f.wrong(line, "%s has a password, and others can read the file; run chmod 600 %s, or leave the password out",
		what, Pasted(f.path))
}

// duration reads a duration. The word "once" is a period, as --once is.
func (f *configFile) duration(
	what string, line int, value *unstable.Node, least, most time.Duration,
) (*Setting[time.Duration], error) {
	text, err := f.text(what, line, value)
	if err != nil {
		return nil, err
	}
	s := &Setting[time.Duration]{From: f.at(line)}
	if least == 0 && text == "once" {
		s.Value = tenure.Once
		return s, nil
	}
	d := Duration{Value: &s.Value, Least: least, Most: most, Examples: `"30s", "5m", "1h30m" or "1d"`}
	if err := d.Set(text); err != nil {
		return nil, f.wrong(line, "%s: %q: %v", what, text, err)
	}
	return s, nil
}

// text reads a string.
func (f *configFile) text(what string, line int, value *unstable.Node) (string, error) {
	text := string(value.Data)
	switch {
	case value.Kind != unstable.String:
		return "", f.wrong(line, "%s: write one text in quotes", what)
	case text == "":
		return "", f.wrong(line, "%s is empty; leave the line out", what)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "", f.wrong(line, "%s has a control character", what)
	}
	return text, nil
}

// texts reads a list of strings.
func (f *configFile) texts(what string, line int, value *unstable.Node) (list []Setting[string], err error) {
	if value.Kind != unstable.Array {
		return nil, f.wrong(line, "%s: write a list of texts, as in [\"one\", \"two\"]", what)
	}
	for entries := value.Children(); entries.Next(); {
		text, err := f.text(what, line, entries.Node())
		if err != nil {
			return nil, err
		}
		list = append(list, Setting[string]{text, f.at(line)})
	}
	return list, nil
}

// unknown is the error for a name that croft does not know.
func (f *configFile) unknown(name []string, line int) error {
	var known []string
	switch {
	case len(name) == 3 && name[0] == "keys" && (name[2] == "raise" || name[2] == "trust" || name[2] == "store"):
		return f.wrong(line, "%s belongs to no prefix; put the line above the first [table]", name[2])
	case len(name) == 2 && name[0] == "keys":
		return f.wrong(line, "keys has a table for each prefix, as in [keys.\"reports/\"]")
	case len(name) > 1 && name[0] == "stores":
		return f.wrong(line, "a store is a directory or a URL in quotes, as in prod = \"/srv/croft\"")
	case len(name) == 1 && (name[0] == "stores" || name[0] == "keys"):
		return f.wrong(line, "%s is a table: write [%s]", name[0], name[0])
	case len(name) == 3 && name[0] == "keys":
		known = []string{"ttl", "every", "guards"}
	default:
		known = []string{"store", "stores", "keys", "raise", "trust"}
	}
	return f.wrong(line, "there is no setting %s; known are %s", dotted(name), strings.Join(known, ", "))
}

// dotted writes a name as TOML does.
func dotted(name []string) string {
	parts := slices.Clone(name)
	for i, part := range parts {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool {
			return r != '-' && r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		}) {
			parts[i] = fmt.Sprintf("%q", part)
		}
	}
	return strings.Join(parts, ".")
}

func (f *configFile) at(line int) Origin {
	return Origin{f.kind, fmt.Sprintf("%s:%d", f.path, line)}
}

func (f *configFile) wrong(line int, format string, args ...any) error {
	return Invalid("configuration %s: %s", f.at(line).Where, fmt.Sprintf(format, args...))
}

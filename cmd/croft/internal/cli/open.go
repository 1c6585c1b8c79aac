package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/internal/identity"
	"github.com/croft-dev/croft/internal/registry"
	"github.com/croft-dev/croft/store"
)

// ListTimeout bounds a whole listing, which may be long. It also ends one on a
// mount that hangs.
const ListTimeout = time.Minute

// HomeDir finds the user's home in the password database, not in $HOME. So
// cron, sudo and shells agree on the default store.
var HomeDir = func() (string, error) {
	var u *user.User
	var err error
	if runtime.GOOS == "windows" {
		u, err = user.Current()
	} else {
		u, err = user.LookupId(strconv.Itoa(os.Getuid()))
	}
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(u.HomeDir) {
		return "", fmt.Errorf("the home of %s is %q", u.Username, u.HomeDir)
	}
	return u.HomeDir, nil
}

// StoreName returns the store that the flag, the environment, a configuration
// file or the default names. It makes a path absolute, so that the path means
// the same to a child in another directory.
func (a *App) StoreName() (name string, defaulted bool, err error) {
	s, _, err := a.StoreSetting()
	return s.Value, err == nil && s.From.Source == FromDefault, err
}

// StoreSetting is StoreName with the origin. word is the store's name in the
// configuration, if it was given by that.
func (a *App) StoreSetting() (s Setting[string], word string, err error) {
	switch given := os.Getenv(EnvStore); {
	case a.StoreGiven() && a.StoreURL == "":
		return s, "", Invalid("store: --store is empty; give a directory or a URL")
	case a.StoreGiven():
		s = Setting[string]{a.StoreURL, Origin{FromFlag, "--store"}}
	case given != "":
		s = Setting[string]{given, Origin{FromEnv, EnvStore}}
	default:
		config, err := a.Config()
		if err != nil {
			return s, "", err
		}
		s, _ = config.store()
	}
	if s.Value == "" {
		name, err := DefaultStore()
		if err != nil {
			return s, "", Invalid("store: none is named, and there is no home to keep one in (%v); give --store "+
				"or set %s", err, EnvStore)
		}
		return Setting[string]{name, Usual}, "", nil
	}
	given := s.Value
	if s.Value, err = a.StoreAt(given); err != nil {
		return s, "", err
	}
	if storeName.MatchString(given) {
		if config, err := a.Config(); err == nil {
			if _, known := config.Stores()[given]; known {
				word = given
			}
		}
	}
	return s, word, nil
}

// StoreAt makes the name of a store, as a user gives it, independent of the
// working directory. A plain word is the name of a store in the configuration.
// If the configuration has no such store, it is a directory. If the
// configuration has other stores, that directory must exist: the word is likely
// mistyped.
func (a *App) StoreAt(name string) (string, error) {
	if storeName.MatchString(name) {
		config, err := a.Config()
		if err != nil {
			return "", err
		}
		if s, known := config.Stores()[name]; known {
			name = s.Value
		} else if _, err := os.Stat(name); err != nil && len(config.Stores()) > 0 {
			return "", Invalid("store: %s; to make a directory of this name write ./%s", config.noStore(name), name)
		}
	}
	name, err := WithPassword(name)
	if err != nil {
		return "", err
	}
	// Opening refuses a ~ that no shell has replaced, and a URL without its
	// slashes.
	if IsURL(name) || strings.HasPrefix(name, "~") || registry.SchemeOf(name) != "" {
		return name, nil
	}
	name, err = filepath.Abs(name)
	if err != nil {
		return "", Invalid("store: %v; give it as an absolute path", err)
	}
	return name, nil
}

// DefaultStore is the directory of the store when none is named.
func DefaultStore() (string, error) {
	home, err := HomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "croft"), nil
}

// Open opens the store. It prints the name of the store if it is the default.
func (a *App) Open(ctx context.Context) (store.Store, error) {
	name, defaulted, err := a.StoreName()
	if err != nil {
		return nil, err
	}
	if defaulted && !a.Quiet {
		fmt.Fprintf(a.Stderr, "croft: this machine only: %s\n", name)
	}
	defer a.AskOnTerminal()()
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	return OpenWithin(ctx, name)
}

// OpenWithin opens a store. It gives up when ctx ends, even if the system call
// does not return, as on a dead network mount.
func OpenWithin(ctx context.Context, name string) (store.Store, error) {
	return within(ctx, name, store.Open)
}

// within opens a store or a ledger, and gives up when ctx ends.
func within[T any](ctx context.Context, name string, open func(context.Context, string) (T, error)) (T, error) {
	type opened struct {
		it  T
		err error
	}
	done := make(chan opened, 1)
	go func() {
		it, err := open(ctx, name)
		done <- opened{it, err}
	}()
	select {
	case o := <-done:
		return o.it, o.err
	case <-ctx.Done():
		var none T
		return none, store.Unknown(fmt.Errorf("%s cannot be opened: %w; see whether the mount or the server answers",
			store.Redact(name), ctx.Err()))
	}
}

// Now is QuietNow, and shows on a terminal if the store does not answer.
func (a *App) Now(ctx context.Context, st store.Store) (time.Time, error) {
	defer a.AskOnTerminal()()
	return a.QuietNow(ctx, st)
}

// QuietNow asks for the store's time, the first question of a listing. A
// listing may take long, but a store that does not answer is told within
// --timeout. The time alone proves nothing, because etcd's store has it from
// this machine. So QuietNow reads a record first.
func (a *App) QuietNow(ctx context.Context, st store.Store) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*a.Timeout)
	defer cancel()
	if _, err := st.Get(ctx, drillKeys+"none"); err != nil {
		return time.Time{}, store.Unknown(err)
	}
	now, err := st.Now(ctx)
	if err != nil {
		err = store.Unknown(err)
	}
	return now, err
}

// LookUp opens the store only if it exists already. It prints nothing and
// creates nothing. Completion uses it, and commands that can do without the
// store.
func (a *App) LookUp(ctx context.Context) (store.Store, error) {
	name, _, err := a.StoreName()
	if err != nil {
		return nil, err
	}
	if path := LocalPath(name); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return OpenWithin(ctx, name)
}

// LocalPath returns the folder or file of a store that opening would create. It
// is "" for a server.
func LocalPath(name string) string {
	if !IsURL(name) {
		return name
	}
	if u, err := url.Parse(name); err == nil && (u.Scheme == "dir" || u.Scheme == "sqlite") {
		return u.Path
	}
	return ""
}

// Client opens the store and a client on it. end closes both.
func (a *App) Client(ctx context.Context) (c *croft.Client, end func(), err error) {
	return a.ObservedClient(ctx, nil)
}

// ObservedClient is client with an observer.
func (a *App) ObservedClient(ctx context.Context, observe func(croft.Event)) (c *croft.Client, end func(), err error) {
	st, err := a.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	c = croft.New(st, &croft.Options{Owner: a.Owner, CallTimeout: a.Timeout, Observe: a.tellRetries(observe)})
	return c, func() {
		_ = c.Close()
		_ = st.Close()
	}, nil
}

// Actor returns the name of the acting user, for commands without a client.
func (a *App) Actor() string { return cmp.Or(a.Owner, identity.Owner()) }

// IsURL tells a URL from a path, as the stores' registry does.
func IsURL(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && !strings.Contains(scheme, "/")
}

// passwordOf returns the password in a URL, or "" if it is shorter than 4
// characters. Replacing single letters would make a message unreadable.
func passwordOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	if len(password) < 4 {
		return ""
	}
	return password
}

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/store"
)

// listTimeout bounds a whole listing, which may be long. It also ends one on a
// mount that hangs.
const listTimeout = time.Minute

// homeDir finds the user's home in the password database, not in $HOME. So
// cron, sudo and shells agree on the default store.
var homeDir = func() (string, error) {
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

// storeName returns the store that the flag, the environment or the default
// names. It makes a path absolute, so that the path means the same to a child
// in another directory.
func (a *app) storeName() (name string, defaulted bool, err error) {
	name = os.Getenv(envStore)
	if a.storeGiven() {
		name = a.storeURL
		if name == "" {
			return "", false, invalid("store: --store is empty; give a directory or a URL")
		}
	}
	if name == "" {
		if name, err = defaultStore(); err != nil {
			return "", false, invalid("store: none is named, and there is no home to keep one in (%v); give --store "+
				"or set %s", err, envStore)
		}
		return name, true, nil
	}
	name, err = storeAt(name)
	return name, false, err
}

// storeAt makes the name of a store, as a user gives it, independent of the
// working directory.
func storeAt(name string) (string, error) {
	name, err := withPassword(name)
	if err != nil {
		return "", err
	}
	scheme, _, colon := strings.Cut(name, ":")
	// Opening refuses a ~ that no shell has replaced, and a URL without its
	// slashes.
	if isURL(name) || strings.HasPrefix(name, "~") || colon && slices.Contains(store.Schemes(), scheme) {
		return name, nil
	}
	name, err = filepath.Abs(name)
	if err != nil {
		return "", invalid("store: %v; give it as an absolute path", err)
	}
	return name, nil
}

// defaultStore is the directory of the store when none is named.
func defaultStore() (string, error) {
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "croft"), nil
}

// open opens the store. It prints the name of the store if it is the default.
func (a *app) open(ctx context.Context) (store.Store, error) {
	name, defaulted, err := a.storeName()
	if err != nil {
		return nil, err
	}
	if defaulted {
		fmt.Fprintf(a.stderr, "croft: this machine only: %s\n", name)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.timeout)
	defer cancel()
	return openWithin(ctx, name)
}

// openWithin opens a store. It gives up when ctx ends, even if the system call
// does not return, as on a dead network mount.
func openWithin(ctx context.Context, name string) (store.Store, error) {
	type opened struct {
		st  store.Store
		err error
	}
	done := make(chan opened, 1)
	go func() {
		st, err := store.Open(ctx, name)
		done <- opened{st, err}
	}()
	select {
	case o := <-done:
		return o.st, o.err
	case <-ctx.Done():
		return nil, store.Unknown(fmt.Errorf("%s cannot be opened: %w; see whether the mount or the server answers",
			store.Redact(name), ctx.Err()))
	}
}

// lookUp opens the store only if it exists already. It prints nothing and
// creates nothing. Completion uses it, and commands that can do without the
// store.
func (a *app) lookUp(ctx context.Context) (store.Store, error) {
	name, _, err := a.storeName()
	if err != nil {
		return nil, err
	}
	if path := localPath(name); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	return openWithin(ctx, name)
}

// localPath returns the folder or file of a store that opening would create. It
// is "" for a server.
func localPath(name string) string {
	if !isURL(name) {
		return name
	}
	if u, err := url.Parse(name); err == nil && (u.Scheme == "dir" || u.Scheme == "sqlite") {
		return u.Path
	}
	return ""
}

// client opens the store and a client on it. end closes both.
func (a *app) client(ctx context.Context) (c *croft.Client, end func(), err error) {
	return a.observed(ctx, nil)
}

// observed is client with an observer.
func (a *app) observed(ctx context.Context, observe func(croft.Event)) (c *croft.Client, end func(), err error) {
	st, err := a.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	c = croft.New(st, &croft.Options{Owner: a.owner, CallTimeout: a.timeout, Observe: observe})
	return c, func() {
		_ = c.Close()
		_ = st.Close()
	}, nil
}

// actor returns the name of the acting user, for commands without a client.
func (a *app) actor() string {
	if a.owner != "" {
		return a.owner
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return name + "@" + host
}

// isURL tells a URL from a path, as the stores' registry does.
func isURL(name string) bool {
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

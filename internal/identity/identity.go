// Package identity has the default names of a client: its owner, as people know
// it, and its instance, which is this run of it.
package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"strings"
	"unicode"

	"github.com/croft-dev/croft/internal/excerpt"
	"github.com/croft-dev/croft/tenure"
)

// Owner returns user@host. The user comes from the password database first, so
// that cron, sudo and shells agree.
func Owner() string { return owner(host()) }

func owner(host string) string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = printable(u.Username)
	}
	for _, variable := range []string{"USER", "LOGNAME", "USERNAME"} {
		if name == "" {
			name = printable(os.Getenv(variable))
		}
	}
	if name == "" {
		name = fmt.Sprintf("uid%d", os.Getuid())
	}
	return clip(name + "@" + host)
}

// Instance returns a name that tells this call in this process from all others.
// It has a random part, so that an equal process id on another machine or after
// a restart gives another name.
func Instance() string { return instance(host()) }

func instance(host string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return clip(fmt.Sprintf("%d-%s@%s", os.Getpid(), hex.EncodeToString(b[:]), host))
}

func host() string {
	name, err := os.Hostname()
	if err != nil || printable(name) == "" {
		return "localhost"
	}
	return printable(name)
}

// printable removes characters that an owner's name may not have.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

func clip(s string) string { return excerpt.Of(s, tenure.MaxName) }

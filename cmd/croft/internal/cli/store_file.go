package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/internal/registry"
)

// Environments end up in logs, crash reports and child processes. So a command
// that croft starts finds CROFT_STORE without the store's password. The whole
// URL is in a file beside the lease, which only this user can read. Croft
// removes it after the command. A croft that the command calls reads it there.

// envStoreFile names that file. It is set only if there is one.
const envStoreFile = "CROFT_STORE_FILE"

// maxStore is longer than any store's URL.
const maxStore = 64 << 10

// PassStoreFlag defines --pass-store.
func PassStoreFlag(flags *pflag.FlagSet, pass *bool) {
	flags.BoolVar(pass, "pass-store", false, "leave the store's password in the command's "+EnvStore)
}

// StoreFor returns the variables through which a command reaches a store. It
// writes the file to dir if the URL has a secret.
func StoreFor(dir, name string, pass bool) (env []string, err error) {
	bare := registry.Bare(name)
	if pass || bare == name {
		return []string{EnvStore + "=" + name}, nil
	}
	file := filepath.Join(dir, "store")
	if err := os.WriteFile(file, []byte(name+"\n"), 0o600); err != nil {
		return nil, err
	}
	return []string{EnvStore + "=" + bare, envStoreFile + "=" + file}, nil
}

// WithPassword adds the password of CROFT_STORE to the name of that store, or
// of a target in it. The file has the password of one store only, and no other
// URL gets it.
func WithPassword(name string) (string, error) {
	file := os.Getenv(envStoreFile)
	if file == "" || !IsURL(name) || registry.Bare(name) != name {
		return name, nil
	}
	storeURL, resource, isTarget := strings.Cut(name, "#")
	whole, err := readStore(file)
	switch {
	case err != nil && storeURL == os.Getenv(EnvStore):
		return "",
			Invalid("store %s: croft keeps its password out of %s, and the file that has it cannot be read (%v); "+
				"if the command changes its user or outlives croft, start it with --pass-store",
				storeURL, EnvStore, err)
	case err != nil || registry.Bare(whole) != storeURL:
		return name, nil // another store
	case isTarget:
		return whole + "#" + resource, nil
	}
	return whole, nil
}

// readStore reads the file with a store's URL.
func readStore(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxStore {
		return "", fmt.Errorf("%s: it is no regular file of at most %d bytes", file, maxStore)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxStore))
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if name == "" {
		return "", fmt.Errorf("%s: it is empty", file)
	}
	return name, nil
}

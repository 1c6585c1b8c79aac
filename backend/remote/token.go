package remote

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// tokenAge is how long a token is used before its file is read again.
	tokenAge = time.Minute
	maxToken = 16 << 10
)

// token is the bearer token of a client.
type token struct {
	file string // "" means the environment

	mu    sync.Mutex // guards the fields below
	value string
	at    time.Time // when it was read; zero if it never was
}

// read returns the token, "" if there is none. If the file cannot be read any
// more, the token that was read last still counts.
func (t *token) read() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.at.IsZero() && time.Since(t.at) < tokenAge {
		return t.value, nil
	}
	value, err := t.load()
	if err != nil && t.at.IsZero() {
		return "", err
	}
	if err == nil {
		t.value = value
	}
	t.at = time.Now()
	return t.value, nil
}

func (t *token) load() (string, error) {
	if t.file == "" {
		return checkToken(os.Getenv(EnvToken))
	}
	text, err := readFile(t.file)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	value, err := checkToken(strings.TrimSpace(string(text)))
	if err == nil && value == "" {
		err = fmt.Errorf("token: %s is empty", t.file)
	}
	return value, err
}

// checkToken refuses what cannot be a token. Its error does not repeat it.
func checkToken(value string) (string, error) {
	if len(value) > maxToken {
		return "", errors.New("token: it is too long")
	}
	if i := strings.IndexFunc(value, func(c rune) bool { return c <= ' ' || c >= 0x7f }); i >= 0 {
		return "", fmt.Errorf("token: it has a character at byte %d that no token has", i)
	}
	return value, nil
}

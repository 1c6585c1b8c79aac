package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/internal/fsys"
)

// KeysFlag defines --keys.
func KeysFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "keys", "", "admit only stamps that one of these public keys has signed: a PEM `file`, "+
		"as the server gives it at /v1/keys")
}

// ReadKeys reads the file of --keys. Without one it returns nil. Others must
// not be able to add a key.
func ReadKeys(file string) (*signed.Keys, error) {
	if file == "" {
		return nil, nil
	}
	text, err := fsys.OS{}.ReadFile(fsys.Anywhere(file), signed.MaxSize)
	if err == nil {
		err = CheckWriters(file)
	}
	if err != nil {
		return nil, Invalid("--keys: %v", err)
	}
	return signed.ParseKeys(text)
}

// ReadSigner reads the file of --sign-key: the private key that signs, and the
// public halves of all keys in the file. Nobody else may read the file.
func ReadSigner(file string) (*signed.Key, *signed.Keys, error) {
	text, err := readSecret(file)
	if err != nil {
		return nil, nil, Invalid("--sign-key: %v", err)
	}
	key, err := signed.ParseKey(text)
	if err != nil {
		return nil, nil, Invalid("--sign-key %s: %v", Word(file), err)
	}
	keys, err := signed.ParseKeys(text)
	return key, keys, err
}

// ReadSessionKey reads the file of --session-key: at least 32 bytes that nobody
// else may read.
func ReadSessionKey(file string) ([]byte, error) {
	text, err := readSecret(file)
	if err != nil {
		return nil, Invalid("--session-key: %v", err)
	}
	if text = bytes.TrimSpace(text); len(text) < 32 || len(text) > signed.MaxSize {
		return nil, Invalid("--session-key %s: it must have between 32 and %d bytes; make it with: "+
			"openssl rand -base64 32", Word(file), signed.MaxSize)
	}
	return text, nil
}

// ReadCredential reads the file of --credential, which nobody else may read.
func ReadCredential(source string) (string, error) {
	name, isFile := strings.CutPrefix(source, "@")
	if !isFile {
		return "", Invalid("--credential: give it as @FILE; every user of the machine can read an argument")
	}
	text, err := readSecret(name)
	if err != nil {
		return "", Invalid("--credential: %v", err)
	}
	return string(text), nil
}

// readSecret reads a file that only its owner can read.
func readSecret(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", Word(file))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !secret(info) {
		return nil, fmt.Errorf("others can read %s; run chmod 600 %s, and make a new key if somebody may have read it",
			Word(file), Pasted(file))
	}
	return io.ReadAll(io.LimitReader(f, signed.MaxSize+1))
}

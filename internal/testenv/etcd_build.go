package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

var builtEtcd struct {
	sync.Mutex
	path string
	err  error
}

// etcdProgram builds etcd's server from its module in tools/etcd, once: the first time takes a minute or two. With -short it skips the test, which promises tests without servers.
func etcdProgram(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("testenv: -short starts no servers, and this needs etcd")
	}
	builtEtcd.Lock()
	defer builtEtcd.Unlock()
	if builtEtcd.path == "" && builtEtcd.err == nil {
		builtEtcd.path, builtEtcd.err = buildTool("etcd")
	}
	if builtEtcd.err != nil {
		Missing(tb, "etcd could not be built (%v); see tools/etcd", builtEtcd.err)
	}
	return builtEtcd.path
}

// buildTool builds the program of the module tools/NAME into .tools/bin, unless it is there and newer than its sources. Other test binaries may want the same at this moment: one builds, the others wait.
func buildTool(name string) (string, error) {
	top, err := topFolder()
	if err != nil {
		return "", err
	}
	source, bin := filepath.Join(top, "tools", name), filepath.Join(top, ".tools", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and lets go of it
	if err := lockFile(lock); err != nil {
		return "", err
	}
	program := filepath.Join(bin, name)
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if newer(program, source) {
		return program, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS=", "GOARCH=", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in %s: %w: %s", source, err, tail(out, 400))
	}
	return program, nil
}

// newer reports whether a program is there and no source of it has changed since.
func newer(program, source string) bool {
	built, err := os.Stat(program)
	if err != nil {
		return false
	}
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		info, err := os.Stat(filepath.Join(source, name))
		if err != nil || info.ModTime().After(built.ModTime()) {
			return false
		}
	}
	return true
}

// topFolder is the repository's: the one with the folder tools.
func topFolder() (string, error) {
	folder, err := os.Getwd()
	for err == nil {
		if info, statErr := os.Stat(filepath.Join(folder, "tools", "etcd", "go.mod")); statErr == nil && !info.IsDir() {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			err = errors.New("tools/etcd is in no folder above this one")
		}
		folder = parent
	}
	return "", err
}

// secure lets the checks of a member that speaks TLS trust any certificate: they only ask whether it is up.
func (m *EtcdMember) secure() {
	m.scheme = "https"
	m.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
}

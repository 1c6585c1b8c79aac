package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// servedStore is a server in a process of its own.
type servedStore struct {
	process      *exec.Cmd
	url, metrics string
}

// startServer starts croft serve before a store.
func startServer(ctx context.Context, program, store string) (*servedStore, error) {
	cmd := exec.CommandContext(
		ctx, program, "serve", "--json", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--store", store,
	)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &servedStore{process: cmd}
	lines := bufio.NewScanner(said)
	var heard []string
	for (s.url == "" || s.metrics == "") && lines.Scan() {
		heard = append(heard, lines.Text())
		if _, at, found := strings.Cut(lines.Text(), "metrics at "); found {
			s.metrics = at
		}
		var event struct{ Event, Address string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Event == "listening" {
			s.url = "http://" + event.Address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	if s.url == "" || s.metrics == "" {
		s.stop()
		return nil, fmt.Errorf("croft serve did not start: %s", strings.Join(heard, "; "))
	}
	return s, nil
}

func (s *servedStore) stop() {
	_ = s.process.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(time.Minute, func() { _ = s.process.Process.Kill() })
	defer timer.Stop()
	_ = s.process.Wait()
}

func (s *servedStore) cpu() time.Duration { return processTime(s.process.Process.Pid) }

// memory returns the resident memory of the server in bytes, 0 if the system
// does not tell.
func (s *servedStore) memory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	if err != nil {
		return 0
	}
	kb, err := strconv.ParseInt(strings.TrimSuffix(after(string(text), "VmRSS:"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}

// storeCalls returns how often the server has called its store so far.
func (s *servedStore) storeCalls() (int64, error) {
	reply, err := http.Get(s.metrics)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	sum, found := int64(0), false
	lines := bufio.NewScanner(reply.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "croft_server_store_call_seconds_count{") {
			continue
		}
		_, value, _ := strings.Cut(lines.Text(), "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+int64(n), true
	}
	if !found {
		return 0, errors.New("the server's metrics do not tell of calls of the store")
	}
	return sum, lines.Err()
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// neighbourEnv makes this program a neighbour of the tests instead of a hunter.
// Neighbours are processes of their own, so that they compete like any other.
const neighbourEnv = "FLAKES_NEIGHBOUR"

// isNeighbour does a neighbour's work, if neighbourEnv is set. It returns true
// when the hunter is gone, which closes stdin.
func isNeighbour() bool {
	kind := os.Getenv(neighbourEnv)
	switch kind {
	case "":
		return false
	case "busy":
		go spin()
	default:
		lowerPriority()
		go writeAndSync(kind)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// spin keeps a core busy.
func spin() {
	for n := 0; ; n++ {
		_ = n
	}
}

// writeAndSync keeps the disk of a folder busy. It ignores errors: a full disk
// is a bad neighbour, too.
func writeAndSync(folder string) {
	data := make([]byte, 4<<20)
	for n := 0; ; n++ {
		name := filepath.Join(folder, fmt.Sprint(n%4))
		if f, err := os.Create(name); err == nil {
			_, _ = f.Write(data)
			_ = f.Sync()
			_ = f.Close()
		}
		_ = os.Remove(filepath.Join(folder, fmt.Sprint((n+1)%4)))
	}
}

// neighbours are the processes that compete with the tests.
type neighbours struct {
	commands []*exec.Cmd
	stdins   []io.Closer
}

// start starts one neighbour: "busy", or a folder to write to.
func (n *neighbours) start(kind string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(cmd.Environ(), neighbourEnv+"="+kind, "GOMAXPROCS=2")
	own(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a neighbour: %w", err)
	}
	n.commands, n.stdins = append(n.commands, cmd), append(n.stdins, stdin)
	return nil
}

// end stops all neighbours.
func (n *neighbours) end() error {
	var found []error
	for i, cmd := range n.commands {
		_ = n.stdins[i].Close()
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			found = append(found, err)
		}
		_ = cmd.Wait()
	}
	n.commands, n.stdins = nil, nil
	return errors.Join(found...)
}

package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a server under test. It can be killed, paused and started again.
// On Linux it dies with the test binary, however that ends.
type Process struct {
	name    string
	command func() *exec.Cmd

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	said *output
}

// Start starts a process and waits until ready returns nil. It calls command
// for every start, also after a restart. The process is stopped when the test
// ends.
func Start(tb testing.TB, name string, command func() *exec.Cmd, ready func() error) *Process {
	tb.Helper()
	p := &Process{name: name, command: command}
	tb.Cleanup(p.Stop)
	p.Run(tb, ready)
	return p
}

// Run starts the process again after it was killed, and waits until ready
// returns nil.
func (p *Process) Run(tb testing.TB, ready func() error) {
	tb.Helper()
	if err := p.run(); err != nil {
		tb.Fatalf("testenv: starting %s: %v", p.name, err)
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-done:
			tb.Fatalf("testenv: %s ended at once: %s", p.name, p.Output())
		default:
		}
		if err = ready(); err == nil {
			return
		}
	}
	tb.Fatalf("testenv: %s is not ready after %s: %v\n%s", p.name, Patience, err, p.Output())
}

// run starts the process from a thread that lives as long. The kernel kills a
// child when the thread that started it ends, not when its process does.
func (p *Process) run() error {
	cmd, said, done := p.command(), &output{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = said, said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieTogether(cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.done, p.said = cmd, done, said
	return nil
}

// Pid returns the process id.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Output returns the end of the process's output.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said == nil {
		return ""
	}
	return p.said.String()
}

// Kill ends the process with SIGKILL, and waits until it is gone.
func (p *Process) Kill() {
	if p.gone() {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop asks the process to end, and kills it if it does not within 10 seconds.
// It may be called at any time, and twice.
func (p *Process) Stop() {
	if p.gone() {
		return
	}
	p.Resume() // a paused process does not react
	_ = p.cmd.Process.Signal(terminate)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Pause stops the process, like a machine that hangs: connections stay open,
// and nothing answers.
func (p *Process) Pause(tb testing.TB) {
	tb.Helper()
	if err := p.signal(pause); err != nil {
		tb.Fatalf("testenv: stopping %s: %v", p.name, err)
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume() { _ = p.signal(resume) }

func (p *Process) signal(s os.Signal) error {
	if p.gone() {
		return os.ErrProcessDone
	}
	if s == nil {
		return fmt.Errorf("this system cannot pause a process")
	}
	return p.cmd.Process.Signal(s)
}

func (p *Process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// output keeps the end of a process's output.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const mostOutput = 16 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if over := o.text.Len() - mostOutput; over > 0 {
		o.text.Next(over)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

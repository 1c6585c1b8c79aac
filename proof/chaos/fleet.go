package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/croft-dev/croft/internal/test/faultnet"
)

// patience is the limit for everything that must happen in the end. It detects
// hanging, not slowness.
const patience = 5 * time.Minute

// member is one client of the fleet. When its process is killed, another
// follows.
type member struct {
	name  string // of the current process
	n     int
	owner string // the same for all processes of the member
	lives int
	links []*faultnet.Link
	fleet *fleet

	cmd     *exec.Cmd
	stdin   io.Closer
	said    *said
	done    chan struct{} // closed when the process is gone
	err     error         // of Wait; read it after done is closed
	stopped bool
	doomed  bool // its end is expected, or was reported
}

// fleet is all clients and operators of a run.
type fleet struct {
	brief   brief // the fields that all clients share
	testbed *testbed
	members []*member
}

// launch starts the clients, and then the operators.
func launch(b brief, g *testbed, operators int) (*fleet, error) {
	f := &fleet{brief: b, testbed: g}
	for n := range b.Clients + operators {
		links, err := g.connect()
		m := &member{n: n, owner: owner(n), fleet: f, links: links}
		if n >= b.Clients {
			m.owner = fmt.Sprintf("operator%d", n-b.Clients)
		}
		f.members = append(f.members, m)
		if err == nil {
			err = m.start()
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// start starts the member's next process.
func (m *member) start() error {
	f := m.fleet
	m.lives++
	b := f.brief
	m.name = fmt.Sprintf("%s-%d", m.owner, m.lives)
	b.Process, b.Owner, b.Operator = m.name, m.owner, m.n >= b.Clients
	b.Seed = b.Seed + uint64(m.n)<<32 + uint64(m.lives)
	b.Store, b.Site = f.testbed.reach(m.links)
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.said, m.done, m.doomed, m.stopped = &said{}, make(chan struct{}), false, false
	m.cmd = exec.Command(self)
	m.cmd.Env = append(append(os.Environ(), f.testbed.env...), asked+"="+string(text), "GOMAXPROCS=2")
	m.cmd.Stdout, m.cmd.Stderr = m.said, m.said
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	dieTogether(m.cmd)
	started := make(chan error, 1)
	cmd, done := m.cmd, m.done
	go func() { // a child dies with the thread that started it, so keep that thread
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			m.err = cmd.Wait()
		}
		close(done)
	}()
	return <-started
}

func (m *member) gone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// kill ends the process with no chance to clean up.
func (m *member) kill() {
	m.doomed = true
	_ = m.cmd.Process.Kill()
	<-m.done
}

func (m *member) stop() error {
	m.stopped = true
	return stopProcess(m.cmd.Process)
}

func (m *member) resume() {
	m.stopped = false
	_ = resumeProcess(m.cmd.Process)
}

// setFault sets the fault on all links of the client.
func (m *member) setFault(f faultnet.Fault) {
	for _, l := range m.links {
		l.Set(f)
	}
}

// check returns an error, once, if the client ended by itself.
func (m *member) check() error {
	if !m.gone() || m.doomed {
		return nil
	}
	m.doomed = true
	why := "without an error"
	if m.err != nil {
		why = m.err.Error()
	}
	return fmt.Errorf("client %s ended by itself: %s: %s", m.name, why, m.said)
}

// finish asks all clients to end, and waits for them.
func (f *fleet) finish() error {
	var found []error
	for _, m := range f.members {
		found = append(found, m.check())
		m.setFault(faultnet.Fault{})
		m.resume()
		_ = m.stdin.Close()
	}
	giveUp := time.After(patience)
	for _, m := range f.members {
		select {
		case <-m.done:
			if m.err != nil && !m.doomed {
				found = append(found, fmt.Errorf("client %s ended badly: %w: %s", m.name, m.err, m.said))
			}
		case <-giveUp:
			_ = quitProcess(m.cmd.Process) // it prints its stacks
			select {
			case <-m.done:
			case <-time.After(10 * time.Second):
			}
			found = append(found, fmt.Errorf(
				"client %s did not end within %s after all faults were over; it was here:\n%s",
				m.name, patience, m.said,
			))
			giveUp = time.After(time.Second)
		}
	}
	return errors.Join(found...)
}

// scuttle kills the remaining clients and closes all links.
func (f *fleet) scuttle() {
	for _, m := range f.members {
		if m.cmd != nil && m.cmd.Process != nil && !m.gone() {
			m.kill()
		}
		for _, l := range m.links {
			l.Close()
		}
	}
}

// said keeps the last 16 KiB of a process's output.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if over := s.text.Len() - 16<<10; over > 0 {
		s.text.Next(over)
	}
	return len(b), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

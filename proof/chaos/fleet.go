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

	"github.com/croft-dev/croft/internal/link"
)

// patience bounds what must happen some time. It is a bound on hanging, not on speed.
const patience = 5 * time.Minute

// member is one client's place in the fleet: a process, followed by another when that is killed.
type member struct {
	name  string // of the present process
	n     int
	owner string // all processes of the member
	lives int
	links []*link.Link
	fleet *fleet

	cmd     *exec.Cmd
	stdin   io.Closer
	said    *said
	done    chan struct{} // closed when the process is gone
	err     error         // how it ended, after done
	stopped bool
	doomed  bool // it was killed on purpose
}

// fleet is all clients of a run.
type fleet struct {
	brief   brief // without what differs from client to client
	ground  *ground
	members []*member
}

// launch starts the clients, and then the operators.
func launch(b brief, g *ground, operators int) (*fleet, error) {
	f := &fleet{brief: b, ground: g}
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

// start runs the member's next process.
func (m *member) start() error {
	f := m.fleet
	m.lives++
	b := f.brief
	m.name = fmt.Sprintf("%s-%d", m.owner, m.lives)
	b.Process, b.Owner, b.Operator = m.name, m.owner, m.n >= b.Clients
	b.Seed = b.Seed + uint64(m.n)<<32 + uint64(m.lives)
	b.Store, b.Site = f.ground.reach(m.links)
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
	m.cmd.Env = append(append(os.Environ(), f.ground.env...), asked+"="+string(text), "GOMAXPROCS=2")
	m.cmd.Stdout, m.cmd.Stderr = m.said, m.said
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	dieTogether(m.cmd)
	started := make(chan error, 1)
	cmd, done := m.cmd, m.done
	go func() { // a child dies with the thread that started it, so that has to live as long
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

// weather befalls all links of a client.
func (m *member) weather(w link.Weather) {
	for _, l := range m.links {
		l.Set(w)
	}
}

// check notes a client that has ended by itself, which none should.
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

// finish asks all clients to end and waits for them.
func (f *fleet) finish() error {
	var found []error
	for _, m := range f.members {
		found = append(found, m.check())
		m.weather(link.Weather{})
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
			_ = quitProcess(m.cmd.Process) // it tells where it hangs
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

// scuttle leaves nothing behind.
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

// said keeps the end of what a process says.
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

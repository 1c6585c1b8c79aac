package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// actor is an agent process, as the story has it in hand.
type actor struct {
	p      *place
	name   string
	token  int64
	cmd    *exec.Cmd
	orders io.WriteCloser
	said   chan string   // answers to calls
	gone   chan struct{} // closed when the agent says nothing more

	mu    sync.Mutex
	proxy int // the process id of its proxy
}

// start starts an agent, and waits until it has the task.
func (p *place) start(name string) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{p: p, name: name, said: make(chan string, 100), gone: make(chan struct{})}
	a.cmd = exec.Command(self, "agent", name, p.folder, p.croft)
	apart(a.cmd)
	if a.orders, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	granted := make(chan event, 1)
	go func() {
		defer close(a.gone)
		for events := json.NewDecoder(out); ; {
			var e event
			if err := events.Decode(&e); err != nil {
				return
			}
			switch {
			case e.Proxy != 0:
				a.mu.Lock()
				a.proxy = e.Proxy
				a.mu.Unlock()
			case e.Token != 0 || e.Error != "":
				granted <- e
			default:
				a.said <- e.Said
			}
		}
	}()
	select {
	case e := <-granted:
		if a.token = e.Token; e.Error == "" {
			return a, nil
		}
		err = errors.New(e.Error)
	case <-a.gone:
		err = errors.New("it has ended")
	case <-time.After(2 * patience):
		err = errors.New("it does not get the task")
	}
	a.end()
	return nil, fmt.Errorf("%s: %w", name, err)
}

// tell gives an order.
func (a *actor) tell(o order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = a.orders.Write(append(text, '\n'))
	return err
}

// begin makes the agent call a tool. The function that it returns waits for the
// answer.
func (a *actor) begin(tool, text string, slowly bool) (answer func() (string, error), err error) {
	if err := a.tell(order{Tool: tool, Text: text, Slowly: slowly}); err != nil {
		return nil, err
	}
	return func() (string, error) {
		select {
		case said := <-a.said:
			return said, nil
		case <-a.gone:
			return "", fmt.Errorf("%s has ended", a.name)
		case <-time.After(patience):
			return "", fmt.Errorf("%s does not answer", a.name)
		}
	}, nil
}

// call makes the agent call a tool, and waits for the answer.
func (a *actor) call(tool, text string, slowly bool) (string, error) {
	answer, err := a.begin(tool, text, slowly)
	if err != nil {
		return "", err
	}
	return answer()
}

// insist makes the agent write until the answer says more than "not now": the
// predecessor's write may be in doubt, or the proxy have ended. A call that is
// made again is another write.
func (a *actor) insist(text string) (said string, err error) {
	end := time.Now().Add(patience)
	for try := 1; ; try++ {
		said, err = a.call("write_file", text, false)
		code := codeOf(said)
		if err != nil || code != "held" && code != "unknown" && code != "gone" || time.Now().After(end) {
			return said, err
		}
		text = fmt.Sprintf("%s, try %d", strings.TrimSuffix(text, fmt.Sprintf(", try %d", try)), try+1)
		time.Sleep(50 * time.Millisecond)
	}
}

// codeOf returns the code of a refusal, "gone" if the proxy had ended, or "".
func codeOf(said string) string {
	if rest, refused := strings.CutPrefix(said, "Refused by croft ("); refused {
		code, _, _ := strings.Cut(rest, ")")
		return code
	}
	if strings.HasPrefix(said, "gone") {
		return "gone"
	}
	return ""
}

// end ends the agent, whatever state it is in. Its proxy sees it leave.
func (a *actor) end() {
	_ = a.orders.Close()
	_ = a.thaw()
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

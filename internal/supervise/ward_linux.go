package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wardens are the living wardens of this process. Other children may be
// orphans.
var wardens = struct {
	sync.Mutex
	pids map[int]bool
}{pids: make(map[int]bool)}

// ward is the caller's view of the warden and its command.
type ward struct {
	pid    int // of the command
	warden *os.Process
	conn   *net.UnixConn
	events chan event

	sending sync.Mutex
	orders  *json.Encoder

	walking sync.Mutex // protects the memory of tree: freeze, thaw, terminate
	tree    tree
	dying   context.Context // ends when a freeze has become pointless
	die     context.CancelFunc

	reaped  chan struct{} // closed when the warden is dead; then clean is set
	clean   bool          // the warden left by itself: nothing is alive
	refused chan []int    // the last processes that the warden may not kill
	gone    chan struct{} // closed when the warden's orphans are dead, too; then leftErr is set
	leftErr error
}

// launch starts a warden and has it start the command.
func launch(ctx context.Context, args []string, o *Options, foreground bool) (body, <-chan event, error) {
	if !wardenReady.Load() {
		if o.GroupWillDo {
			return launchGroup(ctx, args, o, foreground)
		}
		return nil, nil, ErrNoWarden
	}
	if _, ok := readProc(os.Getpid()); !ok {
		return nil, nil, errors.New("supervise: the process table cannot be read; mount /proc")
	}
	// From here on the orphans of a killed warden become children of this
	// process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, nil, fmt.Errorf(
			"supervise: this system does not let croft keep track of a command's descendants: %w", err)
	}
	start := order{Start: &spec{
		Args: toBytes(args), Env: toBytes(o.environ()), Scratch: []byte(o.Scratch), Foreground: foreground,
	}}
	if o.AllowFor != 0 {
		start.Until = max(sinceBoot()+o.AllowFor, 1)
	}
	w, err := startWarden(o)
	if err != nil {
		return nil, nil, err
	}
	answer := w.listen()
	_ = w.order(start)
	var first report
	select {
	case first = <-answer:
	case <-ctx.Done():
	}
	switch {
	case first.Started != 0:
		return w, w.events, nil
	case first.Failed != nil:
		err = &StartError{Name: args[0], Code: first.Failed.Code, Why: first.Failed.Why, Err: first.Failed.Errno}
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = ErrWardenLost
	}
	// The command must not start late, either. Processes that cannot be killed
	// now are left to the warden, which goes on trying.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if left := w.kill(bounded); left != nil {
		err = errors.Join(err, left)
	}
	return nil, nil, err
}

// startWarden executes this program as a warden.
func startWarden(o *Options) (*ward, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("supervise: no socket to the warden: %w", err)
	}
	near := os.NewFile(uintptr(pair[0]), "warden")
	defer near.Close()
	defer unix.Close(pair[1])
	conn, err := net.FileConn(near)
	if err != nil {
		return nil, fmt.Errorf("supervise: no socket to the warden: %w", err)
	}
	files, closeFiles, err := o.streams()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer closeFiles()

	w := &ward{
		conn:    conn.(*net.UnixConn),
		orders:  json.NewEncoder(conn),
		events:  make(chan event, 16),
		reaped:  make(chan struct{}),
		gone:    make(chan struct{}),
		refused: make(chan []int, 1),
	}
	w.dying, w.die = context.WithCancel(context.Background())
	w.tree = tree{root: w.root}

	wardens.Lock() // also keeps other wardens from inheriting this one's socket
	defer wardens.Unlock()
	// The warden inherits the socket under a number that is free here. The
	// usual 3 may be a descriptor that the command shall inherit. The number
	// must also stay free: if the streams are not in order, StartProcess moves
	// them, in the new process, to the numbers just above the highest of them,
	// whatever is there.
	highest := uintptr(2)
	for _, f := range files {
		highest = max(highest, f.Fd())
	}
	far, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD, int(highest)+8)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("supervise: no socket to the warden: %w", err)
	}
	defer unix.Close(far)
	// /proc/self/exe, because the file may have been replaced by a newer
	// version.
	w.warden, err = os.StartProcess("/proc/self/exe", []string{"warden", "of", strconv.Itoa(os.Getpid())}, &os.ProcAttr{
		Dir:   o.Dir,
		Env:   append(os.Environ(), wardenVar+"="+strconv.Itoa(far)),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT},
	})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("supervise: the warden cannot be started: %w", err)
	}
	wardens.pids[w.warden.Pid] = true
	return w, nil
}

// listen reads the warden's reports until the warden ends, and then cleans up
// behind it. The channel that it returns yields the first report, or is closed
// without one.
func (w *ward) listen() <-chan report {
	answer := make(chan report, 1)
	ended := make(chan bool, 1)
	go func() {
		state, err := w.warden.Wait()
		ended <- err == nil && state.Exited() && state.ExitCode() == 0
		// All its reports are in the socket now. The end of file may come late,
		// if another process was forked at the wrong moment and inherited the
		// other end.
		_ = w.conn.SetReadDeadline(time.Now().Add(time.Second))
	}()
	go func() {
		defer close(w.events)
		receive := json.NewDecoder(w.conn)
		var known bool
		for heard := 0; ; heard++ {
			var r report
			if receive.Decode(&r) != nil {
				break
			}
			switch {
			case heard == 0:
				w.pid = r.Started
				answer <- r
			case r.Exited:
				known = true
				status := statusOf(r.Status)
				status.Overdue = r.Overdue
				w.events <- event{exited: true, status: status}
			case r.Stopped != 0:
				w.events <- event{stopped: r.Stopped}
			case r.Refused != nil:
				select {
				case w.refused <- r.Refused:
				default: // no Kill has read the last list yet
				}
			}
		}
		close(answer)
		last := w.cleanUp(<-ended)
		switch {
		case known:
		case last != nil:
			w.events <- event{exited: true, status: statusOf(*last)}
		default:
			w.events <- event{exited: true, err: ErrWardenLost}
		}
	}()
	return answer
}

// cleanUp tidies up behind a dead warden. If the warden did not leave by
// itself, its children are now children of this process. cleanUp kills and
// reaps them. It returns the status of the command, if the command was among
// them.
func (w *ward) cleanUp(clean bool) (last *syscall.WaitStatus) {
	defer close(w.gone)
	wardens.Lock()
	delete(wardens.pids, w.warden.Pid)
	wardens.Unlock()
	w.clean = clean
	close(w.reaped)
	_ = w.conn.Close()
	if clean {
		return nil
	}
	orphans := tree{root: w.root, reap: func(dead []proc) {
		for _, p := range dead {
			var status syscall.WaitStatus
			if p.parent != os.Getpid() {
				continue
			}
			if pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil); err == nil && pid != 0 && pid == w.pid {
				last = &status
			}
		}
	}}
	w.leftErr = orphans.kill(context.Background())
	return last
}

// root is the warden while it lives. The orphans of a killed warden are all
// children of this process that are not wardens themselves.
func (w *ward) root() (int, map[int]bool, bool) {
	select {
	case <-w.reaped:
	default:
		return w.warden.Pid, nil, true
	}
	if w.clean {
		return 0, nil, false
	}
	wardens.Lock()
	defer wardens.Unlock()
	skip := make(map[int]bool)
	for pid := range wardens.pids {
		skip[pid] = true
	}
	return os.Getpid(), skip, true
}

func (w *ward) order(o order) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	if w.orders.Encode(o) != nil {
		return ErrOver // the warden is gone, or Kill has told it to go
	}
	return nil
}

func (w *ward) id() int                         { return w.pid }
func (w *ward) signal(sig syscall.Signal) error { return w.order(order{Signal: sig}) }
func (w *ward) allowFor(d time.Duration) error  { return w.order(order{Until: max(sinceBoot()+d, 1)}) }

func (w *ward) freeze(ctx context.Context) error {
	w.walking.Lock()
	defer w.walking.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.dying, cancel)()
	return w.tree.freeze(ctx)
}

func (w *ward) thaw() {
	w.walking.Lock()
	defer w.walking.Unlock()
	w.tree.thaw()
}

func (w *ward) terminate() error {
	w.walking.Lock()
	defer w.walking.Unlock()
	return w.tree.terminate()
}

// kill lets the warden kill. It closes its side of the socket, which the warden
// reads as the death of this process. Only the warden can tell for certain that
// nothing is left. The warden can still report until it ends.
func (w *ward) kill(ctx context.Context) error {
	w.die()
	_ = w.conn.CloseWrite()
	_ = w.warden.Signal(syscall.SIGCONT) // somebody may have stopped it
	select {
	case <-w.gone:
		return w.leftErr
	case left := <-w.refused:
		return &SurvivorsError{PIDs: left, Err: syscall.EPERM}
	case <-ctx.Done():
		return &SurvivorsError{PIDs: w.alive(), Err: ctx.Err()}
	}
}

// alive only looks, so it does not wait for walking.
func (w *ward) alive() []int {
	living, _, _ := w.tree.look()
	if len(living) == 0 {
		// If the warden was killed this very moment, its children have just
		// become ours.
		if p, ok := readProc(w.warden.Pid); !ok || !p.alive() {
			<-w.reaped
			living, _, _ = w.tree.look()
		}
	}
	return pids(living)
}

package supervise

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// init keeps the main goroutine on the main thread, for leaderless.
func init() {
	if os.Getenv(roleVar) == "leaderless" {
		runtime.LockOSThread()
	}
}

// leaderless makes a process whose first thread has ended while another goes
// on: /proc shows it as a zombie. It writes its pid into the file named in its
// argument, and then sleeps.
func leaderless() {
	go func() {
		runtime.LockOSThread()
		for {
			p, ok := readProc(os.Getpid())
			if ok && p.state == 'Z' {
				break
			}
			runtime.Gosched()
		}
		name := os.Args[1]
		_ = os.WriteFile(name+".new", []byte(strconv.Itoa(os.Getpid())), 0o600)
		_ = os.Rename(name+".new", name)
		select {}
	}()
	// End only this thread. unix.Syscall tells the scheduler, which gives the
	// thread's processor to others. With one processor nothing would run
	// otherwise.
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

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

// leaderless becomes a process whose first thread has ended while another goes on: /proc shows it as a zombie.
// It writes its pid into the file it is given and then sleeps.
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
	// This thread alone. As a call that the scheduler knows of: it takes back what the thread ran on, or with one processor nothing would run any more.
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Caller and warden exchange a stream of JSON objects each way over one socket.
// The command is sent here and not in the warden's arguments. So killing the
// command by name (pkill -f) leaves the warden alive.

// order is a message from the caller to the warden. One field is set, or Start
// and Until.
type order struct {
	Start  *spec          `json:",omitempty"` // always in the first order, and only there
	Signal syscall.Signal `json:",omitempty"` // for the command's process group
	Until  time.Duration  `json:",omitempty"` // since boot; then the warden kills the command
}

// spec is the command. It has bytes, because arguments need not be UTF-8.
type spec struct {
	Args, Env  [][]byte
	Scratch    []byte `json:",omitempty"`
	Foreground bool   // the group becomes the foreground group of the terminal on stdin
}

// report is a message from the warden to the caller. The first has Started or
// Failed.
type report struct {
	Started int                `json:",omitempty"` // the command's pid
	Failed  *failure           `json:",omitempty"` // why it did not start
	Stopped syscall.Signal     `json:",omitempty"`
	Refused []int              `json:",omitempty"` // processes that the warden may not kill
	Exited  bool               `json:",omitempty"`
	Status  syscall.WaitStatus `json:",omitempty"` // with Exited
	Overdue bool               `json:",omitempty"` // with Exited: the warden killed it because its time was up
}

// failure is a StartError on its way to the caller.
type failure struct {
	Code  int
	Why   string
	Errno syscall.Errno
}

func toBytes(words []string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

func toStrings(words [][]byte) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}

// sinceBoot reads a clock that both processes share. It goes on while the
// machine sleeps.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("supervise: no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

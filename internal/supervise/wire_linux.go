package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What caller and warden say to each other: a stream of JSON objects each way over one socket. The command travels
// here and not in the warden's arguments, so that killing the command by name (pkill -f) leaves the warden standing.

// order is what the caller tells the warden; one field is set, or Start and Until.
type order struct {
	Start  *spec          `json:",omitempty"` // always the first order
	Signal syscall.Signal `json:",omitempty"` // for the command's process group
	Until  time.Duration  `json:",omitempty"` // since boot; when it has passed, kill
}

// spec is the command. Bytes, because arguments need not be UTF-8.
type spec struct {
	Args, Env  [][]byte
	Scratch    []byte `json:",omitempty"`
	Foreground bool   // the group becomes the foreground group of the terminal on stdin
}

// report is what the warden tells the caller.
type report struct {
	Started int                `json:",omitempty"` // the command's pid; or
	Failed  *failure           `json:",omitempty"` // there is none. One of the two is always the first report
	Stopped syscall.Signal     `json:",omitempty"`
	Refused []int              `json:",omitempty"` // told to kill all, it may not kill these
	Exited  bool               `json:",omitempty"`
	Status  syscall.WaitStatus `json:",omitempty"` // with Exited
	Overdue bool               `json:",omitempty"` // with Exited: killed because its time was up
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

// sinceBoot is a clock that both processes share and that runs on while the machine sleeps.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("supervise: no CLOCK_BOOTTIME: " + err.Error()) // since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

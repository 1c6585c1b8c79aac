package supervise

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	getModes = unix.TCGETS
	setModes = unix.TCSETS
)

// withoutTTOU runs do, for which the system would stop a background process by
// SIGTTOU. It blocks the signal on this thread and does not ignore it, because
// os/signal cannot undo ignoring.
func withoutTTOU(do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	const bits = 8 * int(unsafe.Sizeof(block.Val[0]))
	bit := int(unix.SIGTTOU) - 1
	block.Val[bit/bits] |= 1 << (bit % bits)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	do()
}

// stopSelf stops this process by sig. It returns when the process has been
// continued, or at once if the system refuses because nobody could continue it.
//
// The signal needs its default effect for that, and os/signal cannot restore it
// once a signal was caught. So stopSelf sets it by a system call. It sends the
// signal to the calling thread, where it acts before the call returns. Sent to
// the process, it might act on another thread a moment later.
func stopSelf(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// All zeros mean the default on every architecture. The old value is saved
	// without being read. The kernel's struct has at most 32 bytes.
	var byDefault, before [64]byte
	if sigaction(sig, &byDefault, &before) != 0 {
		return
	}
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	_ = sigaction(sig, &before, nil)
}

func sigaction(sig syscall.Signal, set, old *[64]byte) syscall.Errno {
	maskSize := uintptr(8)
	switch runtime.GOARCH {
	case "mips", "mipsle", "mips64", "mips64le":
		maskSize = 16
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), maskSize, 0, 0)
	return errno
}

package testenv

import "syscall"

// diesWithUs says that the kernel ends children when this process ends.
const diesWithUs = true

func dieTogether(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

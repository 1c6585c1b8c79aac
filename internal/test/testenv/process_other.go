//go:build !linux

package testenv

import "syscall"

// diesWithUs says that the kernel ends children when this process ends.
const diesWithUs = false

func dieTogether(*syscall.SysProcAttr) {}

package etcd

import "golang.org/x/sys/unix"

// bootName returns the kernel's name for this boot.
func bootName() string {
	text, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return text
}

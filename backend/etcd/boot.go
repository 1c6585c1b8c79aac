//go:build !darwin

package etcd

import (
	"os"
	"strings"
)

// bootName returns the kernel's name for this boot. It returns "" on systems
// other than Linux, which give boots no name.
func bootName() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

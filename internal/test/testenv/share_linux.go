package testenv

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Share is one folder, served by a real sshd, and mounted several times over
// SSHFS: each mount is as another machine, with caches of its own. It returns
// the folder as the server has it, and the mounts.
func Share(tb testing.TB, mounts int) (served string, mounted []string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Missing(tb, "a network file system takes root, to run sshd and to mount it")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		Missing(tb, "a network file system takes FUSE: %v", err)
	}
	sshfs := Program(tb, "sshfs", "sshfs")
	keygen := Program(tb, "ssh-keygen", "openssh-client")
	sshd := Program(tb, "sshd", "openssh-server", "/usr/sbin")
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		Missing(tb, "sshd cannot have its folder: %v", err)
	}
	home := tb.TempDir()
	served = filepath.Join(home, "served")
	if err := os.Mkdir(served, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(served, shareMarker), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	host, user := filepath.Join(home, "host"), filepath.Join(home, "user")
	for _, key := range []string{host, user} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
			tb.Fatalf("testenv: ssh-keygen: %v: %s", err, out)
		}
	}
	port := FreePort(tb)
	Start(tb, "sshd", func() *exec.Cmd {
		return exec.Command(sshd, "-D", "-e", "-f", "/dev/null", "-p", strconv.Itoa(port), "-h", host,
			"-o", "ListenAddress=127.0.0.1", "-o", "AuthorizedKeysFile="+user+".pub",
			"-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "UsePAM=no", "-o", "PidFile=none",
			"-o", "Subsystem=sftp internal-sftp")
	}, func() error {
		conn, err := net.DialTimeout("tcp", loopback(port), Patience)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	for i := range mounts {
		mount := filepath.Join(home, fmt.Sprintf("mount%d", i+1))
		if err := os.Mkdir(mount, 0o755); err != nil {
			tb.Fatal(err)
		}
		Start(tb, "sshfs", func() *exec.Cmd {
			return exec.Command(sshfs, "-f", "-p", strconv.Itoa(port), "-F", "/dev/null", "-o", "IdentityFile="+user,
				"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@127.0.0.1:"+served, mount)
		}, func() error {
			_, err := os.Stat(filepath.Join(mount, shareMarker))
			return err
		})
		tb.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
		mounted = append(mounted, mount)
	}
	return served, mounted
}

// shareMarker is a file in the served folder: a mount that has it is one.
const shareMarker = ".served"

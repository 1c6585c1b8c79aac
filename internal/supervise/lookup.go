//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn starts a command as a shell would. It looks it up in PATH, runs a
// script without #! by the shell, and tells "not found" from "found, but cannot
// be executed".
func spawn(args []string, attr *syscall.ProcAttr) (int, *StartError) {
	name := args[0]
	path, failed := find(name, attr.Env)
	if failed != nil {
		return 0, failed
	}
	pid, err := syscall.ForkExec(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) && isText(path) {
		script := append([]string{"/bin/sh", path}, args[1:]...)
		pid, err = syscall.ForkExec("/bin/sh", script, attr)
	}
	if err != nil {
		return 0, explain(name, path, err)
	}
	return pid, nil
}

// find returns the file that name stands for. It skips a file in PATH that may
// not be executed. If it finds no other, the error is about that file.
func find(name string, env []string) (string, *StartError) {
	if name == "" {
		return "", &StartError{
			Name: name, Code: CodeNotFound,
			Why: "the command is empty; name a program after --", Err: syscall.ENOENT,
		}
	}
	if strings.Contains(name, "/") {
		if err := runnable(name); err != nil {
			return "", explain(name, name, err)
		}
		return name, nil
	}
	var refused *StartError
	path := searchPath(env)
	for _, dir := range strings.Split(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		err := runnable(file)
		if err == nil {
			return file, nil
		}
		// A file in a folder closed to this user cannot be seen, so it does not
		// count as found.
		if _, hidden := os.Stat(file); refused == nil && !missing(err) && hidden == nil {
			refused = explain(name, file, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", &StartError{
		Name: name, Code: CodeNotFound, Err: syscall.ENOENT,
		Why: fmt.Sprintf("command not found in PATH (%s); check the spelling or give its full path", path),
	}
}

func missing(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}

func runnable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	// Ask the system: mode bits know nothing of ACLs or noexec mounts.
	return unix.Access(file, unix.X_OK)
}

// explain makes a StartError of the error in looking up or executing file.
func explain(name, file string, err error) *StartError {
	e := &StartError{Name: name, Code: CodeNotExecutable, Err: err}
	_, statErr := os.Stat(file)
	switch {
	case missing(err) && statErr != nil:
		e.Code = CodeNotFound
		e.Why = fmt.Sprintf("no such file: %s; check the path and the working directory", file)
	case missing(err):
		e.Why = fmt.Sprintf("%s exists, but its interpreter does not; check its first line", file)
	case errors.Is(err, syscall.EISDIR):
		e.Why = file + " is a directory; name a program in it"
	case errors.Is(err, syscall.EACCES):
		e.Why = fmt.Sprintf("permission denied: %s is not executable for this user; "+
			"chmod +x it, or run it by its interpreter", file)
	case errors.Is(err, syscall.ENOEXEC):
		e.Why = file + " is not a program for this system; rebuild it, or start a script with #!"
	case errors.Is(err, syscall.E2BIG):
		e.Why = "arguments and environment are too long for this system; pass them in a file"
	case errors.Is(err, syscall.ETXTBSY):
		e.Why = file + " is being written to; wait until that is finished"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		e.Why = fmt.Sprintf("%v: no room for another process; see ulimit -u and free memory", err)
	default:
		e.Why = fmt.Sprintf("%s: %v", file, err)
	}
	return e
}

// searchPath is the PATH of the command's own environment. Without one it is
// the path that C libraries use by default.
func searchPath(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return value
		}
	}
	return "/bin:/usr/bin"
}

// isText reports whether a file that the kernel cannot run may be a script. A
// shell must not run a program for another machine: that could do anything.
func isText(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false
	}
	return !bytes.ContainsRune(head[:n], 0)
}

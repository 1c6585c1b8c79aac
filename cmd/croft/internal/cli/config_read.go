package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// maxConfig bounds a configuration file.
const maxConfig = 64 << 10

// readConfig reads a regular file of bounded size. All that it checks, it
// checks on the open file: a path can lead elsewhere at the next look. It
// follows a link only if it is told to.
func readConfig(path string, follow bool) (text []byte, info fs.FileInfo, err error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK // opening a pipe would wait for its writer
	if !follow {
		flags |= noFollow
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		if link, _ := os.Lstat(path); !follow && link != nil && link.Mode()&fs.ModeSymlink != 0 {
			err = errors.New("it is a link, which croft does not follow out of a project; make it a file, " +
				"or name the file with --config")
		}
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is no regular file")
	}
	text, err = io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("it has more than %d bytes", maxConfig)
	}
	return text, info, err
}

// visible reports whether something has this path. What lies in a folder that
// this user cannot enter is not there for this user.
func visible(path string) (fs.FileInfo, bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return info, true, nil
}

// userName returns the name of a user, or the number if there is no name.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return Word(u.Username)
	}
	return "uid " + strconv.Itoa(uid)
}

// CheckWriters returns an error if others may write to a file by which this
// user decides what they may do.
func CheckWriters(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if others := writers(info); others != "" {
		return fmt.Errorf("%s may write to %s; run chmod go-w %s", others, Word(path), Pasted(path))
	}
	return nil
}

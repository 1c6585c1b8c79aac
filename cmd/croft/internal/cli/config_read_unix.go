//go:build unix

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// foreign names the owner of a file that belongs neither to this user nor to
// root. It returns "" for all other files.
func foreign(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "an unknown user"
	case st.Uid == 0 || int(st.Uid) == os.Geteuid():
		return ""
	}
	return userName(int(st.Uid))
}

// writers names the others who may write to a file or folder. It returns "" if
// there are none. A group that has the name of its only user by custom is none:
// systems with such groups let them write by default.
func writers(info fs.FileInfo) string {
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return "everybody"
	case mode&0o020 != 0 && !ownGroup(info):
		st, _ := info.Sys().(*syscall.Stat_t)
		name := fmt.Sprint(st.Gid)
		if g, err := user.LookupGroupId(name); err == nil {
			name = Word(g.Name)
		}
		return "the group " + name
	}
	return ""
}

// ownGroup reports whether the file's group is the user's own: the primary one,
// and with the same name. pam_umask goes by the same rule.
func ownGroup(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	me, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || me.Gid != fmt.Sprint(st.Gid) {
		return false
	}
	group, err := user.LookupGroupId(me.Gid)
	return err == nil && group.Name == me.Username
}

// secret reports whether only the owner can read a file.
func secret(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

// anybodys reports whether every user may make files in a folder, as in /tmp.
func anybodys(folder string) bool {
	info, err := os.Stat(folder)
	return err == nil && info.Mode().Perm()&0o002 != 0
}

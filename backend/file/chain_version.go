package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
)

// chainFormat is the format of versions that this package writes.
const chainFormat = 1

// chainMost bounds the size of a version's file.
const chainMost = 16 << 10

// chainVersion is one version of a guarded file, as its file holds it.
type chainVersion struct {
	Format  int       `json:"format"`
	Number  uint64    `json:"number"`
	Nonce   string    `json:"nonce"`
	Follows string    `json:"follows,omitempty"` // the nonce of the version before
	Changed time.Time `json:"changed"`

	Mark    fence.Mark    `json:"mark"`
	Writes  uint64        `json:"writes"` // admitted so far
	Content *chainContent `json:"content,omitempty"`
	// Previous names the content before, which stays for slow readers.
	Previous string         `json:"previous,omitempty"`
	Rekeyed  *guard.Rekeyed `json:"rekeyed,omitempty"`
	// Pruned: all versions up to this number have been removed.
	Pruned uint64 `json:"pruned,omitempty"`
}

// chainContent is a committed content.
type chainContent struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// successor is the version after v that says the same.
func (v chainVersion) successor() chainVersion {
	v.Format = chainFormat
	v.Follows = v.Nonce
	v.Nonce = newNonce()
	v.Number++
	v.Changed = time.Now().UTC()
	return v
}

// with is a version that has the mark of a sidecar.
func (v chainVersion) with(s slotState) chainVersion {
	v.Mark, v.Writes = s.mark, s.writes
	if s.rekeyed != (guard.Rekeyed{}) {
		v.Rekeyed = &s.rekeyed
	}
	return v
}

// names reports whether a version still needs the content of that name.
func (v chainVersion) names(name string) bool {
	return v.Content != nil && v.Content.Name == name || v.Previous == name
}

// passed reports whether no version will need the file of that name any more,
// if v is or was the newest; see chain.
func (v chainVersion) passed(name string) bool {
	if number, ok := parseVersionName(name); ok {
		return number <= v.Pruned // only strays are left there
	}
	if number, ok := parsePartName(name); ok {
		return number <= v.Number && !v.names(name)
	}
	return isStaged(name) // its writer cannot commit what is gone
}

// encode writes a version: one line of JSON, and the line's checksum.
func (v chainVersion) encode() ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := checksumLine(line)
	return append(append(line, '\n'), sum...), nil
}

func checksumLine(line []byte) string {
	sum := sha256.Sum256(line)
	return `{"sha256":"` + hex.EncodeToString(sum[:]) + "\"}\n"
}

// decodeVersion reads the file of a version. Its error names the damage.
func decodeVersion(data []byte, number uint64) (chainVersion, error) {
	var v chainVersion
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	switch {
	case string(rest) != checksumLine(line):
		return v, errors.New("its checksum does not match")
	case json.Unmarshal(line, &v) != nil:
		return v, errors.New("it cannot be read")
	case v.Format > chainFormat:
		return v, errors.New("it was written by a newer croft; use that version, or a newer one, for every writer")
	case v.Number != number:
		return v, fmt.Errorf("it is version %d", v.Number)
	case !isHex(v.Nonce, nonceDigits) || v.Number > 1 && !isHex(v.Follows, nonceDigits):
		return v, errors.New("its nonce is none")
	case v.Pruned >= v.Number:
		return v, errors.New("it says that it has been removed")
	}
	if err := v.Mark.Check(); err != nil {
		return v, fmt.Errorf("its mark makes no sense: %s", err.Error()) // as text: it is not the caller's input
	}
	if v.Content != nil {
		n, ok := parsePartName(v.Content.Name)
		if !ok || n > number || v.Content.Size < 0 || !isHex(v.Content.SHA256, 64) {
			return v, errors.New("its content has no name that this guard gives")
		}
	}
	return v, nil
}

// read reads one version. The error matches fs.ErrNotExist if there is none.
func (c *chain) read(number uint64) (chainVersion, error) {
	path := c.versionPath(number)
	data, err := c.fs.ReadFile(path, chainMost)
	for range lookTries { // a stale handle is an answer from a cache
		if !errors.Is(err, syscall.ESTALE) {
			break
		}
		data, err = c.fs.ReadFile(path, chainMost)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return chainVersion{}, err
	case foreignReason(err) != "":
		return chainVersion{}, c.damaged(path, "%s", foreignReason(err))
	case err != nil:
		return chainVersion{}, c.failed("reading "+path, err)
	}
	v, err := decodeVersion(data, number)
	if err != nil {
		return chainVersion{}, c.damaged(path, "%v", err)
	}
	return v, nil
}

// foreignReason says why a file cannot be a version: it is a link, a pipe or a
// device, or it is too large. It returns "" for any other error.
func foreignReason(err error) string {
	switch {
	case errors.Is(err, syscall.ELOOP):
		return "it is a symbolic link"
	case errors.Is(err, fsys.ErrNotRegular):
		return "it is not a regular file"
	case errors.Is(err, fsys.ErrTooLarge):
		return "it is larger than any version"
	}
	return ""
}

// modes are the permissions in a chain's folder: those of the directory that
// the artifact lies in. Users who may make files there can replace the artifact
// anyway. A sticky directory gives everybody less than that.
func (v *visit) modes() (folder, file fs.FileMode, err error) {
	info, err := v.fs.Lstat(v.folder)
	if err != nil {
		return 0, 0, v.explain(err)
	}
	if info.Mode()&fs.ModeSticky != 0 {
		return 0o700, 0o600, nil
	}
	perm := info.Mode().Perm() | 0o700
	return perm | info.Mode()&fs.ModeSetgid, perm & 0o666, nil
}

// makeFile makes a new file of the guard's own, with its data on the disk.
func (v *visit) makeFile(path string, data []byte) (fsys.File, error) {
	_, mode, err := v.modes()
	if err != nil {
		return nil, err
	}
	file, err := v.fs.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, v.failed("making "+path, err)
	}
	if _, err = file.Write(data); err == nil {
		err = file.Chmod(mode) // whatever the umask says: others must read it
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		_ = v.fs.Remove(path)
		return nil, v.failed("writing "+path, err)
	}
	return file, nil
}

package file

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// The names of the files in a chain's folder.
const (
	versionDigits = 20
	versionSuffix = ".json"

	contentKind = "content"
	newKind     = "new"
	stageKind   = "stage-"
	retiredName = "sidecar"
	nonceDigits = 32
)

func versionName(n uint64) string { return fmt.Sprintf("%0*d%s", versionDigits, n, versionSuffix) }

// parseVersionName reads the number in a version file's name. It returns false
// for other files.
func parseVersionName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, versionSuffix)
	if !ok || len(digits) != versionDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

func (c *chain) versionPath(number uint64) string { return filepath.Join(c.home, versionName(number)) }

// partName names a content or a new version that is meant for a number.
func partName(kind string, number uint64, nonce string) string {
	return fmt.Sprintf("%s-%0*d-%s", kind, versionDigits, number, nonce)
}

// parsePartName gives the number that a content or a new version is meant for.
func parsePartName(name string) (number uint64, ok bool) {
	kind, rest, _ := strings.Cut(name, "-")
	digits, nonce, _ := strings.Cut(rest, "-")
	if kind != contentKind && kind != newKind || len(digits) != versionDigits || !isHex(nonce, nonceDigits) {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

func (c *chain) part(kind string, number uint64, nonce string) string {
	return filepath.Join(c.home, partName(kind, number, nonce))
}

func (c *chain) stageName(nonce string) string { return filepath.Join(c.home, stageKind+nonce) }

func newNonce() string {
	var random [nonceDigits / 2]byte
	_, _ = rand.Read(random[:]) // does not fail
	return hex.EncodeToString(random[:])
}

func isHex(name string, length int) bool {
	return len(name) == length && strings.Trim(name, "0123456789abcdef") == ""
}

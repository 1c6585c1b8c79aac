package dir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/tenure"
)

// A key's life is a folder, named by its time of birth and random digits. No
// name is used twice. The versions in it are numbered from 1.
const (
	versionDigits = 20
	versionSuffix = ".json"
	lifeDigits    = 16 // of each half: "1763171234567890-0123456789abcdef"
)

// position is a cas.Version in parts: a life, and the number of a version in
// it.
type position struct {
	life   string
	number uint64
}

func (p position) version() cas.Version {
	return cas.Version(p.life + "/" + strconv.FormatUint(p.number, 10))
}

func parsePosition(v cas.Version) (position, error) {
	life, number, _ := strings.Cut(string(v), "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !isLife(life) {
		return position{}, fmt.Errorf("dir: %q is not a version of this store", v)
	}
	return position{life, n}, nil
}

func versionName(n uint64) string { return fmt.Sprintf("%0*d%s", versionDigits, n, versionSuffix) }

// parseVersionName reads the number in a version file's name. It returns false
// for other files, which users may have put beside them.
func parseVersionName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, versionSuffix)
	if !ok || len(digits) != versionDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// newLife names the folder of a key that is born at t. The time is for people.
// The random digits alone make the name unique, whatever clocks do.
func newLife(t time.Time) string {
	return fmt.Sprintf("%0*d-%0*x", lifeDigits, max(t.UnixMicro(), 0), lifeDigits, rand.Uint64())
}

func isLife(name string) bool {
	at, by, ok := strings.Cut(name, "-")
	return ok && len(at) >= lifeDigits && len(by) == lifeDigits &&
		strings.Trim(at, "0123456789") == "" && strings.Trim(by, "0123456789abcdef") == ""
}

// hashOf is the name of a key's folder. It turns any key into one harmless path
// element of fixed length.
func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// encodeRecord writes a version file: the record in one line of JSON, and the
// line's checksum in a second.
func encodeRecord(rec tenure.Record) ([]byte, error) {
	line, err := rec.MarshalJSON() // json.Marshal would check it all again
	if err != nil {
		return nil, fmt.Errorf("dir: the record of %q cannot be written: %w", rec.Key, err)
	}
	sum := checksumLine(line)
	return append(append(line, '\n'), sum...), nil
}

func checksumLine(line []byte) string {
	sum := sha256.Sum256(line)
	return `{"sha256":"` + hex.EncodeToString(sum[:]) + "\"}\n"
}

// decodeRecord reads a version file from the folder of the key with the given
// hash. Its error says how the file is damaged.
func decodeRecord(data []byte, hash string) (tenure.Record, error) {
	none := tenure.Record{}
	if len(data) == 0 {
		return none, fmt.Errorf("it is empty")
	}
	line, rest, whole := bytes.Cut(data, []byte("\n"))
	if want := checksumLine(line); !whole || string(rest) != want {
		if !whole || strings.HasPrefix(want, string(rest)) {
			return none, fmt.Errorf("it is cut off after %d bytes", len(data))
		}
		return none, fmt.Errorf("its checksum does not match its content")
	}
	var rec tenure.Record
	if err := rec.UnmarshalJSON(line); err != nil {
		return none, fmt.Errorf("it cannot be read: %s", err.Error())
	}
	if err := rec.Check(); err != nil {
		// Not wrapped: the record's error matches fence.ErrInvalid, but the
		// caller's input is fine.
		return none, fmt.Errorf("it makes no sense: %s", err.Error())
	}
	if hashOf(rec.Key) != hash {
		return none, fmt.Errorf("it is the record of %q, which belongs elsewhere", rec.Key)
	}
	return rec, nil
}

// DamagedError answers every request about a key whose newest version cannot be
// read. The store decides nothing from that version, and does not overwrite it.
// Other keys are not affected. The error matches [cas.ErrDamaged].
type DamagedError struct {
	// Path is the damaged file or folder.
	Path string
	// Why says how it is damaged.
	Why string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("damaged record %s: %s; make sure that nobody works under this lease, then move it away: "+
		"the version before it counts again, and if there is none the key begins anew", e.Path, e.Why)
}

// Is makes every DamagedError match cas.ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == cas.ErrDamaged }

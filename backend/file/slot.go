package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// A sidecar has two slots. Behind them is the name of the process that holds
// the lock.
//
// Slots are written in place and in turn: even generations into the first, odd
// ones into the second. So a torn write leaves the other slot whole. Each slot
// has a page of its own, so they share no disk sector. The text in a slot is
// padded with NUL, which a terminal does not show.
const (
	slotSize     = 4096
	slotInside   = 2 * slotSize // where the name of the process begins
	slotNameSize = 512
	slotFile     = slotInside + slotNameSize

	slotTitle = "croft fence "
)

// slotUnborn is a new sidecar's first line.
const slotUnborn = "nothing has been admitted here yet\n"

// slotBirth is a new sidecar's content. Its first byte differs from that of
// every slot, so a truncated sidecar never looks like a new one.
var slotBirth = func() []byte {
	image := make([]byte, slotFile)
	copy(image, slotUnborn)
	copy(image[slotInside:], slotNobody)
	return image
}()

// slotState is the content of a slot.
type slotState struct {
	generation uint64
	mark       fence.Mark
	writes     uint64 // admitted so far
	changed    time.Time
	rekeyed    guard.Rekeyed
}

// encode writes a slot: lines of a name and a value. The last line is the
// checksum of the others. Keys, actors and notes may not have control
// characters, so no value contains a line break.
func (s slotState) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s1\ngeneration %d\nkey %s\ntoken %d\ngrant %s\nseq %d\nwrites %d\nchanged %s\n", slotTitle,
		s.generation, s.mark.Key, s.mark.Token, s.mark.Grant, s.mark.Seq, s.writes, slotTime(s.changed))
	if s.rekeyed != (guard.Rekeyed{}) {
		fmt.Fprintf(&b, "rekeyed %s\nfrom %s\nby %s\nbecause %s\n",
			slotTime(s.rekeyed.At), s.rekeyed.From, s.rekeyed.Actor, s.rekeyed.Note)
	}
	fmt.Fprintf(&b, "sum %x\n", sha256.Sum256(b.Bytes()))
	slot := make([]byte, slotSize)
	copy(slot, b.Bytes())
	return slot
}

func slotTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// offset is where the slot begins in the sidecar.
func (s slotState) offset() int64 { return int64(s.generation%2) * slotSize }

// errSlotFormat means that the slot is whole, but a newer version wrote it.
var errSlotFormat = errors.New("it was written by a newer croft; use that version, or a newer one, for every writer")

// slotDecode reads one slot. It accepts exactly what encode writes.
func slotDecode(slot []byte) (slotState, error) {
	text, padding, _ := bytes.Cut(slot, []byte{0})
	if len(text) == 0 {
		return slotState{}, errors.New("blank")
	}
	if len(bytes.Trim(padding, "\x00")) > 0 {
		return slotState{}, errors.New("torn")
	}
	at := bytes.LastIndex(text, []byte("\nsum ")) + 1
	if string(text[at:]) != fmt.Sprintf("sum %x\n", sha256.Sum256(text[:at])) {
		return slotState{}, errors.New("its sum does not match")
	}
	if !bytes.HasPrefix(text, []byte(slotTitle+"1\n")) {
		return slotState{}, errSlotFormat
	}
	s, err := slotParse(string(text[:at]))
	if err != nil {
		return slotState{}, err
	}
	if !bytes.Equal(s.encode(), slot) {
		return slotState{}, errors.New("it is not in the one form that is written")
	}
	return s, nil
}

// slotParse reads the lines of a slot.
func slotParse(text string) (s slotState, err error) {
	number := func(value string) (n uint64) {
		if n, err = strconv.ParseUint(value, 10, 64); err != nil {
			err = fmt.Errorf("%q is not a number", value)
		}
		return n
	}
	moment := func(value string) (t time.Time) {
		if t, err = time.Parse(time.RFC3339Nano, value); err != nil {
			err = fmt.Errorf("%q is not a time", value)
		}
		return t
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch name {
		case "croft": // the title
		case "generation":
			s.generation = number(value)
		case "key":
			s.mark.Key = value
		case "token":
			s.mark.Token = fence.Token(number(value))
		case "grant":
			s.mark.Grant = fence.Grant(value)
		case "seq":
			s.mark.Seq = number(value)
		case "writes":
			s.writes = number(value)
		case "changed":
			s.changed = moment(value)
		case "rekeyed":
			s.rekeyed.At = moment(value)
		case "from":
			s.rekeyed.From = value
		case "by":
			s.rekeyed.Actor = value
		case "because":
			s.rekeyed.Note = value
		default:
			err = fmt.Errorf("it has a line %q", name)
		}
		if err != nil {
			return slotState{}, err
		}
	}
	return s, nil
}

// slotNewest reads a whole sidecar and returns the state of its newest valid
// slot.
//
// born is false if nothing can have been admitted yet: the sidecar is empty,
// its first content is still being written, or a power cut kept the length of
// its first line but not the line.
func slotNewest(image []byte) (newest slotState, born bool, err error) {
	if len(image) < slotFile && bytes.HasPrefix(slotBirth, image[:min(len(image), slotInside)]) {
		return slotState{}, false, nil
	}
	if len(image) == len(slotUnborn) && len(bytes.Trim(image, "\x00")) == 0 {
		return slotState{}, false, nil
	}
	if len(image) != slotFile {
		return slotState{}, false, fmt.Errorf("it is %d bytes long instead of %d", len(image), slotFile)
	}
	var why []string
	for i := range uint64(2) {
		slot := image[i*slotSize : (i+1)*slotSize]
		s, err := slotDecode(slot)
		switch {
		case i == 0 && bytes.Equal(slot, slotBirth[:slotSize]):
			// Generation 0 is safe to accept: generations 1 and 2 are both
			// written before the first mark counts.
			s, err = slotState{}, nil
		case err == nil && s.generation%2 != i:
			err = errors.New("it belongs into the other slot")
		}
		switch {
		case errors.Is(err, errSlotFormat):
			return slotState{}, false, err
		case err != nil:
			why = append(why, fmt.Sprintf("slot %d: %v", i+1, err))
		case !born || s.generation > newest.generation:
			newest, born = s, true
		}
	}
	if !born {
		return slotState{}, false, errors.New(strings.Join(why, "; "))
	}
	if err := newest.mark.Check(); err != nil { // the older slot is no substitute: its mark may be lower
		return slotState{}, false, err
	}
	return newest, true, nil
}

package overhttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// Header is the name of the header that carries a stamp in its text form.
const Header = "Croft-Stamp"

// StampOf reads the stamp of a request. Its error matches admission.ErrNoStamp
// if there is none. It matches fence.ErrInvalid if the stamp cannot be read, if
// there is more than one, or if no store can have issued it.
func StampOf(h http.Header) (fence.Stamp, error) {
	switch values := h.Values(Header); len(values) {
	case 0:
		return fence.Stamp{}, fmt.Errorf("%w; send it in the header %s (inside croft run it is $CROFT_STAMP)",
			admission.ErrNoStamp, Header)
	case 1:
		s, err := fence.ParseStamp(values[0])
		if err != nil {
			return fence.Stamp{}, err
		}
		return s, fence.CheckAhead(s.Token, time.Now())
	default:
		return fence.Stamp{}, fmt.Errorf("%w stamp: the header %s is there %d times; a write has one",
			fence.ErrInvalid, Header, len(values))
	}
}

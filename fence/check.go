package fence

import "fmt"

// Check reports what makes a mark read from a resource impossible, or nil.
// Guards call it on what they read: others may write to the same place. The
// zero Mark is possible, and so is one without a grant, which a move to another
// key leaves.
func (m Mark) Check() error {
	switch {
	case m.IsZero():
		return nil
	case m.Token < 0 || m.Token > MaxToken:
		return fmt.Errorf("mark: %w token %d: it must be between 0 and %d", ErrInvalid, m.Token, MaxToken)
	case m.Grant != "" && !m.Grant.Valid():
		return fmt.Errorf("mark: %w grant %.80q: it must be 32 lower-case hex digits", ErrInvalid, m.Grant)
	}
	return CheckKey(m.Key)
}

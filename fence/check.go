package fence

import "fmt"

// Check returns nil if a resource can have kept this mark, and otherwise an
// error that matches [ErrInvalid]. Guards call it on the marks they read,
// because others may write where a mark is kept. The zero Mark is valid. So is
// a mark without a grant, which [Mark.Rekey] and [Mark.Reset] leave.
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

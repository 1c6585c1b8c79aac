package fence

// Raise decides whether the mark may be advanced to this stamp without a write. It is the decision of [Mark.Admit], except that raising
// to where the mark already stands is no repeated write but the same raise again: a caller whose answer was lost may ask once more.
func (m Mark) Raise(s Stamp) (Mark, error) {
	if err := s.Check(); err != nil {
		return m, err
	}
	if m == Mark(s) {
		return m, nil
	}
	return m.Admit(s)
}

package fence

// Raise decides whether the mark may be advanced to this stamp without a write.
// It decides as [Mark.Admit] does, with one exception: raising to the stamp
// that the mark already shows succeeds again. So a caller whose answer was lost
// may ask once more.
func (m Mark) Raise(s Stamp) (Mark, error) {
	if err := s.Check(); err != nil {
		return m, err
	}
	if m == s.Mark() {
		return m, nil
	}
	return m.Admit(s)
}

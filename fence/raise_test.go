package fence_test

import (
	"errors"
	"testing"

	"github.com/croft-dev/croft/fence"
)

func TestRaisingTwiceIsTheSameAsOnce(t *testing.T) {
	for _, seq := range []uint64{0, 7} {
		stamp := fence.Stamp{Key: "k", Token: 5, Grant: "0123456789abcdef0123456789abcdef", Seq: seq}
		mark, err := fence.Mark{}.Raise(stamp)
		if err != nil || mark != stamp.Mark() {
			t.Fatalf("first raise: %+v, %v", mark, err)
		}
		if again, err := mark.Raise(stamp); err != nil || again != mark {
			t.Errorf("seq %d: second raise: %+v, %v; want the same mark", seq, again, err)
		}
	}
}

func TestRaiseOtherwiseDecidesAsAdmitDoes(t *testing.T) {
	const one, two = fence.Grant("0123456789abcdef0123456789abcdef"), fence.Grant("fedcba9876543210fedcba9876543210")
	mark := fence.Mark{Key: "k", Token: 5, Grant: one, Seq: 7}
	rekeyed := fence.Mark{Key: "k", Token: 5}
	for _, m := range []fence.Mark{{}, mark, rekeyed} {
		for _, s := range []fence.Stamp{
			{Key: "k", Token: 6, Grant: two},
			{Key: "k", Token: 5, Grant: two},
			{Key: "k", Token: 5, Grant: one},
			{Key: "k", Token: 5, Grant: one, Seq: 6},
			{Key: "k", Token: 5, Grant: one, Seq: 8},
			{Key: "k", Token: 4, Grant: one},
			{Key: "other", Token: 6, Grant: one},
			{Key: "k", Token: 5}, // equal to the rekeyed mark, and still not a valid stamp
		} {
			raised, err := m.Raise(s)
			admitted, want := m.Admit(s)
			if raised != admitted || (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Errorf("%+v.Raise(%+v) = %+v, %v; Admit gives %+v, %v", m, s, raised, err, admitted, want)
			}
		}
	}
	if _, err := mark.Raise(fence.Stamp{Key: "k", Token: 5, Grant: one, Seq: 6}); !errors.Is(err, fence.ErrRepeated) {
		t.Errorf("a raise below one's own number: %v, want ErrRepeated", err)
	}
}

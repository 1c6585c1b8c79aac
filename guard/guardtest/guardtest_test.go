package guardtest

import (
	"testing"
)

func TestTheReferenceKeepsTheLaw(t *testing.T) {
	Run(t, Harness{Make: func(testing.TB) Resource { return new(Memory).Resource() }})
}

func TestFailuresFindsNothingWrongWithTheReference(t *testing.T) {
	for name, said := range Failures(t, Harness{Make: func(testing.TB) Resource { return new(Memory).Resource() }}) {
		t.Errorf("%s: %q", name, said)
	}
}

func TestTheFirstGuardedWriteOfOldContentIsAnAdoption(t *testing.T) {
	m := new(Memory)
	m.Put([]byte("written before anybody guarded it"))
	if _, err := m.Raise(t.Context(), stamp(1, 1, 0)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		receipt, err := m.Write(t.Context(), stamp(2, 1, 0), &script{yields("new")})
		if err != nil || receipt.Adopted != want || receipt.Bytes != 3 {
			t.Errorf("write %d: %+v, %v; want adopted %v", i, receipt, err, want)
		}
	}
}

func TestLaw3KnowsWhatComesBefore(t *testing.T) {
	for name, c := range map[string]struct {
		history []Event
		broken  int
	}{
		"nothing":                          {nil, 0},
		"rising":                           {[]Event{{Write, 1, 1, 2, ""}, {Write, 2, 3, 4, ""}}, 0},
		"equal":                            {[]Event{{Write, 2, 1, 2, ""}, {Write, 2, 3, 4, ""}}, 0},
		"falling":                          {[]Event{{Write, 2, 1, 2, ""}, {Write, 1, 3, 4, ""}}, 1},
		"falling, recorded late":           {[]Event{{Write, 1, 3, 4, ""}, {Write, 2, 1, 2, ""}}, 1},
		"overlapping":                      {[]Event{{Write, 2, 1, 3, ""}, {Write, 1, 2, 4, ""}}, 0},
		"below a raise":                    {[]Event{{Raise, 2, 1, 2, ""}, {Write, 1, 3, 4, ""}}, 1},
		"a raise below":                    {[]Event{{Write, 2, 1, 2, ""}, {Raise, 1, 3, 4, ""}}, 1},
		"content from before a raise":      {[]Event{{Write, 1, 1, 2, ""}, {Raise, 2, 3, 4, ""}, {Read, 1, 5, 6, ""}}, 0},
		"content goes back":                {[]Event{{Read, 2, 1, 2, ""}, {Read, 1, 3, 4, ""}}, 1},
		"mark goes back":                   {[]Event{{Look, 2, 1, 2, ""}, {Look, 1, 3, 4, ""}}, 1},
		"a write below what was seen":      {[]Event{{Read, 2, 1, 2, ""}, {Write, 1, 3, 4, ""}}, 1},
		"a write below the mark seen":      {[]Event{{Look, 2, 1, 2, ""}, {Write, 1, 3, 4, ""}}, 1},
		"a long call is before none in it": {[]Event{{Write, 9, 1, 10, ""}, {Write, 1, 2, 3, ""}, {Write, 2, 4, 5, ""}, {Write, 1, 6, 7, ""}}, 1},
	} {
		if got := Law3(c.history); len(got) != c.broken {
			t.Errorf("%s: %q, want %d reports", name, got, c.broken)
		}
	}
}

package wire

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/store"
)

// TestAClientReadsOfAFileWhatTheServerWrote: marks with and without a grant,
// and refusals with the mark that refused.
func TestAClientReadsOfAFileWhatTheServerWrote(t *testing.T) {
	t.Parallel()
	mark := fence.Mark{Key: "jobs/ü:%", Token: fence.MaxToken, Grant: fence.Grant(strings.Repeat("a", 32)), Seq: math.MaxUint64}
	floor := fence.Mark{Key: "jobs/a", Token: 7}
	for _, m := range []fence.Mark{mark, floor, {}} {
		if got, err := ReadMarkText(MarkText(m)); err != nil || got != m {
			t.Errorf("%+v, %v; want %+v", got, err, m)
		}
		want := File{Mark: m, Bytes: 9, Adopted: true, Arrived: 8, Rekeyed: guard.Rekeyed{From: "x", Actor: "opal", Note: "why", At: time.Unix(9, 0).UTC()}}
		if got, err := ReadFile(want.Write()); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	late := fence.Stamp{Key: mark.Key, Token: 5, Grant: mark.Grant}
	other, repeated, collided := late, mark.Stamp(), mark.Stamp()
	other.Key, collided.Grant = "jobs/b", fence.Grant(strings.Repeat("b", 32))
	for want, s := range map[error]fence.Stamp{
		fence.ErrStale: late, fence.ErrWrongKey: other, fence.ErrRepeated: repeated, fence.ErrCollision: collided,
	} {
		_, refused := mark.Admit(s)
		p, err := ReadProblem(ProblemOf(refused).Bytes())
		if err != nil || !errors.Is(refused, want) || !reflect.DeepEqual(p.RefusalOf(s), refused) || p.Status != 409 {
			t.Errorf("%v: %+v, %v", refused, p, err)
		}
		if !errors.Is(p.Err(), store.ErrUnknown) { // from a store it means nothing
			t.Errorf("%v: a client of a store gets %v", refused, p.Err())
		}
	}
	act := FileAct{Act: RekeyFile, Stamp: "x", Key: "y", Floor: 7, Actor: "opal", Note: "why"}
	if got, err := ReadFileAct(act.Bytes()); err != nil || got != act {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		`{"mark":{"token":-1}}`, `{"mark":{"key":"a","token":1,"seq":-1}}`, `{"mark":{"key":"a//b","token":1}}`,
		`{"mark":{"key":"a","token":1,"grant":"x"}}`, `{"mark":[]}`, `{"mark":{},"mark":{}}`, `[]`, ``,
	} {
		if f, err := ReadFile([]byte(text)); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	for _, text := range []string{"", ":::", "1:::", "1:x:0:a", "-1::0:a", "1::-1:a", "1::0:%zz", "1::0:a:b", strings.Repeat("1", 5000) + "::0:a"} {
		if m, err := ReadMarkText(text); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%.40s: %+v, %v", text, m, err)
		}
	}
	id, sum := strings.Repeat("0a", 16), strings.Repeat("0f", 32)
	for _, u := range []Upload{{ID: id, Sum: sum}, {ID: id, Offset: 7, Size: 7, Sum: sum}, {ID: id, Offset: 1, Size: math.MaxInt64, Sum: sum}} {
		if got, err := ReadUpload(u.Text()); err != nil || got != u {
			t.Errorf("%+v, %v; want %+v", got, err, u)
		}
	}
	for _, text := range []string{
		"", ":::", id + ":0:1", id + ":0:1:" + sum + ":", id + ":2:1:" + sum, id + ":-1:1:" + sum, id + ":0:-1:" + sum, id + ":+0:1:" + sum,
		id + ":0:9223372036854775808:" + sum, "x" + id[1:] + ":0:1:" + sum, id[1:] + ":0:1:" + sum, id + ":0:1:" + sum[1:], id + ":0:1:" + strings.ToUpper(sum),
	} {
		if u, err := ReadUpload(text); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%.80s: %+v, %v", text, u, err)
		}
	}
	if p, err := ReadProblem(Problem{Code: Gap, Status: 409, Arrived: 5}.Bytes()); err != nil || p.Arrived != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ReadFileAct([]byte(`{"act":"raise","more":1}`)); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an unknown member: %v", err)
	}
}

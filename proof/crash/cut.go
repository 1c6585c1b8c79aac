package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// Search says how thorough a search is.
type Search struct {
	// From and To are the first and last step after which the power is cut. To
	// 0 means the last step of the recording.
	From, To int
	// Draws is the number of random choices at each step, beside the systematic
	// ones; default 4.
	Draws int
	// Recent is the number of pending steps that are kept or lost one by one;
	// default 10. There may be many older ones. They are kept or lost together,
	// or at random.
	Recent int
	// OneIn recovers one in so many different folders; default all. The folders
	// without any pending step, and with all names but no bytes, are always
	// recovered.
	OneIn int
	// Thin makes one in so many cuts; default all. The cuts that lose or keep
	// everything pending are always made. For a large file, making a folder
	// takes longer than recovering it.
	Thin int
}

// Report is the result of a search.
type Report struct {
	// Steps are the steps of the recording, Cuts the cuts made, Folders the
	// different folders among them, Recovered how many of these were opened.
	Steps, Cuts, Folders, Recovered int
	// Wrong describes the first unlawful recovery and the steps before it. It
	// is "" if there was none.
	Wrong string
}

func (r Report) String() string {
	return fmt.Sprintf("%d steps, %d cuts, %d different folders, %d recovered", r.Steps, r.Cuts, r.Folders, r.Recovered)
}

// Search cuts the power after every step in many ways, writes each folder that
// this may leave, and calls recovered with it. recovered also gets the requests
// and answers from before the cut. The search ends at the first error.
func (r *Recorder) Search(tb testing.TB, s Search, recovered func(top string, notes []any) error) Report {
	tb.Helper()
	if s.Draws == 0 {
		s.Draws = 4
	}
	if s.Recent == 0 {
		s.Recent = 10
	}
	d := r.Disk()
	if s.To == 0 {
		s.To = len(d.ops)
	}
	c := crew{room: testenv.Memory(tb), recovered: recovered, jobs: make(chan job)}
	for range 8 { // recovering mostly waits
		c.done.Go(c.work)
	}
	report := Report{Steps: len(d.ops)}
	dice := rand.New(rand.NewPCG(1, 2)) // the same every time
	seen := map[[32]byte]int{}          // the number of notes when a folder was last checked
	for more := true; more && !c.over(); more = d.Next() {
		if d.at < s.From || d.at > s.To {
			continue
		}
		for i, choice := range d.choices(s, dice) {
			if i >= 2 && s.Thin > 1 && dice.IntN(s.Thin) != 0 {
				continue
			}
			report.Cuts++
			im := d.Cut(choice)
			sum := im.Sum()
			if n, ok := seen[sum]; ok && n == len(d.notes) {
				continue
			}
			seen[sum] = len(d.notes)
			report.Folders++
			// The first choice keeps nothing, the third all names and no bytes.
			// These two are always recovered: most faults show in them.
			if i != 0 && i != 2 && s.OneIn > 1 && report.Folders%s.OneIn != 0 {
				continue
			}
			report.Recovered++
			c.jobs <- job{report.Folders, d.at, im, slices.Clip(d.notes)}
		}
	}
	close(c.jobs)
	c.done.Wait()
	if c.wrong != nil {
		report.Wrong = fmt.Sprintf(
			"power cut after step %d: %v\nthe steps before it:\n%sthe folder it left:\n%s",
			c.first.at, c.wrong, r.Text(c.first.at-25, c.first.at), c.first.image,
		)
	}
	return report
}

// job is one folder to recover.
type job struct {
	number int
	at     int
	image  *Image
	notes  []any
}

// crew recovers folders on several goroutines.
type crew struct {
	room      string
	recovered func(string, []any) error
	jobs      chan job
	done      sync.WaitGroup

	mu    sync.Mutex
	first job // the failed job with the lowest number
	wrong error
}

func (c *crew) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong != nil
}

func (c *crew) work() {
	for j := range c.jobs {
		top := filepath.Join(c.room, strconv.Itoa(j.number))
		err := j.image.Make(top)
		if err == nil {
			err = c.recovered(top, j.notes)
		}
		if removed := os.RemoveAll(top); err == nil {
			err = removed
		}
		c.mu.Lock()
		if err != nil && (c.wrong == nil || j.number < c.first.number) {
			c.first, c.wrong = j, err
		}
		c.mu.Unlock()
	}
}

// choices returns the cuts to try at this step.
func (d *Disk) choices(s Search, dice *rand.Rand) []Choice {
	all := len(d.pending)
	old := max(0, all-s.Recent)
	none, every := func(int, int) bool { return false }, func(int, int) bool { return true }
	choices := []Choice{{Keep: none}, {Keep: every}}
	if all == 0 {
		return choices[:1]
	}
	add := func(keep func(i, n int) bool) {
		choices = append(choices, Choice{Keep: keep}, Choice{Keep: keep, Sizes: true})
	}
	names := func(i, _ int) bool { return d.pending[i].kind == opNames }
	add(names) // all names, none of the bytes
	add(func(i, n int) bool { return !names(i, n) })
	for i := old; i < all; i++ {
		add(func(j, _ int) bool { return j != i }) // only this one is lost
		add(func(j, _ int) bool { return j == i }) // only this one is kept
		add(func(j, _ int) bool { return j < i })  // all before this one are kept
		add(func(j, _ int) bool { return j < old || j == i })
		// A write of several sectors may be torn.
		if sectors := d.pending[i].sectors(); d.pending[i].kind == opWrite && sectors > 1 {
			add(func(j, n int) bool { return j != i || n < sectors/2 })
			add(func(j, n int) bool { return j != i || n >= sectors/2 })
			add(func(j, n int) bool { return j != i || n != 0 })
			add(func(j, n int) bool { return j != i || n != sectors-1 })
			add(func(j, n int) bool { return j != i || n%2 == 0 })
		}
	}
	for range s.Draws {
		// Each step is kept or lost as a whole, or sector by sector.
		most, seed := dice.IntN(101), dice.Uint64()
		torn := dice.IntN(2) == 0
		add(func(i, n int) bool {
			if !torn || d.pending[i].kind == opNames {
				n = 0
			}
			return int(mix(seed, uint64(i), uint64(n))%100) < most
		})
	}
	return choices
}

// mix is a hash of three numbers.
func mix(a, b, c uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15 ^ c*0xc2b2ae3d27d4eb4f
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return x
}

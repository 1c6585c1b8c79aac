package work

import (
	"net/url"
	"strings"

	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/tenure"
)

// Named returns the Guards of the item that the request adds.
func (q Request) Named() []string { return expand(q.Guards, q.Queue, q.ID) }

// expand returns the guards of an item, given their templates. In a URL it
// escapes the queue's name, so that the name cannot change what the URL means.
func expand(templates []string, queue string, id ID) []string {
	if len(templates) == 0 {
		return nil
	}
	guards := make([]string, len(templates))
	for i, template := range templates {
		name := queue
		if strings.Contains(template, "://") {
			segments := strings.Split(queue, "/")
			for i := range segments {
				segments[i] = url.PathEscape(segments[i])
			}
			name = strings.Join(segments, "/")
		}
		guards[i] = strings.NewReplacer(
			"{id}", string(id), "{queue}", name, "{key}", keyOf(name, id),
		).Replace(template)
	}
	return guards
}

// checkGuards returns nil if an item may have these guards.
func checkGuards(guards []string) error {
	if err := tenure.CheckGuards(guards); err != nil {
		return err
	}
	for _, target := range guards {
		if err := guard.CheckNamed(target); err != nil {
			return err
		}
	}
	return nil
}

//go:build linux || darwin

package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/fence"
)

// A worker that was presumed dead and replaced wakes up and writes. The guard
// refuses its write, and the file keeps the new owner's content.
func ExampleOpen() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)

	report, err := file.Open(filepath.Join(folder, "report.txt"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	older := fence.Stamp{Key: "reports/daily", Token: 33, Grant: "00000000000000000000000000000001"}
	newer := fence.Stamp{Key: "reports/daily", Token: 34, Grant: "00000000000000000000000000000002"}

	_, err = report.Write(ctx, newer, strings.NewReader("of the new owner"))
	fmt.Println("newer:", err)
	_, err = report.Write(ctx, older, strings.NewReader("of the old owner"))
	fmt.Println("older is stale:", errors.Is(err, fence.ErrStale))

	content, err := os.ReadFile(filepath.Join(folder, "report.txt"))
	fmt.Println(string(content), err)
	// Output:
	// newer: <nil>
	// older is stale: true
	// of the new owner <nil>
}

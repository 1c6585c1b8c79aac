package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Content is the input of a command: an argument, a file, or standard input.
type Content struct {
	What string
	Most int    // bytes
	From string // the file of --from
}

// Flag defines --from, the file of the content.
func (in *Content) Flag(c *cobra.Command) {
	c.Flags().StringVar(&in.From, "from", "", "read the "+in.What+" from this `file`, or - for standard input")
}

// Read returns the content: the argument, or the file of --from. "-" is
// standard input. given is false if there is neither.
func (in *Content) Read(a *App, args []string) (data []byte, given bool, err error) {
	switch {
	case len(args) > 0 && in.From != "":
		return nil, false,
			&UsageError{
				Message: fmt.Sprintf("the %s is given twice", in.What),
				Hint:    "give it as an argument or with --from",
			}
	case len(args) > 0 && args[0] != "-":
		return []byte(args[0]), true, nil
	case len(args) == 0 && in.From == "":
		return nil, false, nil
	case len(args) > 0 || in.From == "-":
		data, err = in.all(a.Stdin)
		return data, true, err
	}
	f, err := os.Open(in.From)
	if err != nil {
		return nil, false, Invalid("--from: %v", err)
	}
	defer f.Close()
	data, err = in.all(f)
	return data, true, err
}

// ReadBeforeLease reads the arguments of a command that takes a content, and
// after it a lease. With --from the only argument is the lease.
func (in *Content) ReadBeforeLease(a *App, c *cobra.Command, args []string) (data []byte, lease []string, err error) {
	state := args
	if in.From != "" {
		state, lease = nil, args
	} else if len(args) > 1 {
		state, lease = args[:1], args[1:]
	}
	if len(lease) > 1 {
		return nil, nil, &UsageError{
			Message: "too many arguments: with --from only the lease is left",
			Hint:    "see: " + c.CommandPath() + " --help",
		}
	}
	data, given, err := in.Read(a, state)
	if err == nil && !given {
		err = &UsageError{
			Message: fmt.Sprintf("no %s given", in.What),
			Hint:    "give it as an argument, - for standard input, or --from FILE",
		}
	}
	return data, lease, err
}

// all reads one byte more than allowed, so that too much content is refused and
// not cut.
func (in *Content) all(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(in.Most)+1))
	switch {
	case err != nil:
		return nil, Invalid("%s: it could not be read: %v", in.What, err)
	case len(data) > in.Most:
		return nil,
			Invalid("%s: it has more than %d bytes; keep it elsewhere and give its address", in.What, in.Most)
	}
	return data, nil
}

// Excerpt is the beginning of some bytes, safe for a terminal.
func Excerpt(data []byte) string {
	const most = 300
	size := ""
	if len(data) > most || !utf8.Valid(data) {
		size = fmt.Sprintf("  (%s; --raw prints it)", BytesText(int64(len(data))))
	}
	if !utf8.Valid(data) {
		return fmt.Sprintf("no text%s", size)
	}
	return Cut(Line(strings.TrimSuffix(string(data), "\n")), most) + size
}

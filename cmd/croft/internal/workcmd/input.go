package workcmd

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// content is the input of a command: an argument, a file, or standard input.
type content struct {
	what string
	from string
	most int
}

// contentFlag defines --from, the file of the content.
func contentFlag(c *cobra.Command, in *content) {
	c.Flags().StringVar(&in.from, "from", "", "read the "+in.what+" from this `file`, or - for standard input")
}

// read returns the content: the argument, or the file of --from. "-" is
// standard input. given is false if there is neither.
func (in *content) read(a *app, args []string) (data []byte, given bool, err error) {
	switch {
	case len(args) > 0 && in.from != "":
		return nil, false,
			&cli.UsageError{
				Message: fmt.Sprintf("the %s is given twice", in.what),
				Hint:    "give it as an argument or with --from",
			}
	case len(args) > 0 && args[0] != "-":
		return []byte(args[0]), true, nil
	case len(args) == 0 && in.from == "":
		return nil, false, nil
	case len(args) > 0 || in.from == "-":
		data, err = in.all(a.Stdin)
		return data, true, err
	}
	f, err := os.Open(in.from)
	if err != nil {
		return nil, false, cli.Invalid("--from: %v", err)
	}
	defer f.Close()
	data, err = in.all(f)
	return data, true, err
}

// all reads one byte more than allowed, so that too much content is refused and
// not cut.
func (in *content) all(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(in.most)+1))
	switch {
	case err != nil:
		return nil, cli.Invalid("%s: it could not be read: %v", in.what, err)
	case len(data) > in.most:
		return nil,
			cli.Invalid("%s: it has more than %d bytes; keep it elsewhere and give its address", in.what, in.most)
	}
	return data, nil
}

// Package planted has a mistake for every linter. tools/lint/check shows that
// each of them is found.
package planted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/ioutil"
	"net/http"
	"os"
	"time"
)

func Body(c *http.Client) int {
	r, err := c.Get("http://localhost")
	if err != nil {
		return 0
	}
	return r.StatusCode
}

func Loop(each []int) (sum int) {
	for _, v := range each {
		v := v
		sum += v
	}
	return sum
}

func Duration(n time.Duration) time.Duration { return n * time.Second }

func Unchecked() { os.Remove("x") }

func Compared(err error) bool { return err == io.EOF }

func Fat(ctx context.Context, n int) context.Context {
	for range n {
		ctx = context.WithValue(ctx, key{}, n)
	}
	return ctx
}

type key struct{}

func Same(n int) bool { return n == 1 || n == 1 }

func Nil(p *int) int {
	if p == nil {
		return *p
	}
	return 0
}

func Ineffectual() int {
	n := 1
	n = 2
	return n
}

func Zero() []int {
	s := make([]int, 3)
	s = append(s, 1)
	return s
}

func Deprecated(r io.Reader) ([]byte, error) { return ioutil.ReadAll(r) }

func Converted(n int) int { return int(n) }

func Parameter() int { return ignores(7, 8) + ignores(9, 10) }

func ignores(n, m int) int {
	for range n {
		n += Loop([]int{n})
	}
	return n
}

func unused() error { return errors.New("nobody calls this") }

func Excused() { os.Remove("x") } //nolint

func Formatted() {

	fmt.Println("an empty line after the brace")
}

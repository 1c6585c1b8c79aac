package redis

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// Command is a command of Redis with its arguments, as go-redis takes them:
// strings, byte slices and numbers.
type Command []any

// mostWords is how many words of a command Lua can pass to Redis. With more,
// the script would fail after the commands before it have taken effect.
const mostWords = 7000

// CommandError says that a command of an admitted write failed. Redis does not
// roll back: the mark has advanced, and the commands before it have taken
// effect. Those after it were not tried.
type CommandError struct {
	// Index is the command's position in the list.
	Index   int
	Command string
	Err     error
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("redis: command %d of the write, %s, failed: %v; those before it have taken effect",
		e.Index+1, e.Command, e.Err)
}

// Unwrap returns the error of Redis.
func (e *CommandError) Unwrap() error { return e.Err }

// Do carries out commands if the stamp is admitted, and returns their replies.
// They run in order, and no other client comes in between. On a cluster all
// their keys must live on the node of the guarded key: give them its {tag}.
//
// A refusal is an error of package fence and has changed nothing. Do sends the
// commands once. If the reply is lost, the error matches [store.ErrUnknown]. It
// is safe to send them again with the same numbered stamp.
func (g *Guard) Do(ctx context.Context, stamp fence.Stamp, commands ...Command) ([]any, error) {
	out, err := g.change(ctx, "write", stamp, commands)
	return out.replies, err
}

// Write replaces the value with the content of r.
func (g *Guard) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return guard.Receipt{}, err
	}
	if ctx.Err() != nil {
		return guard.Receipt{}, wait.Ended(ctx)
	}
	content, err := wait.For(ctx, func() ([]byte, error) {
		var b bytes.Buffer
		_, err := b.ReadFrom(io.LimitReader(r, g.most+1))
		return b.Bytes(), err
	})
	if err != nil {
		return guard.Receipt{}, err
	}
	if int64(len(content)) > g.most {
		return guard.Receipt{}, fmt.Errorf("%w content: it is longer than %d bytes; raise GuardOptions.MaxContent, "+
			"or keep it in a file or an object store", fence.ErrInvalid, g.most)
	}
	out, err := g.change(ctx, "write", stamp, []Command{{"SET", g.key, content}})
	if err != nil {
		return guard.Receipt{}, err
	}
	return guard.Receipt{Mark: out.mark, Bytes: int64(len(content)), Adopted: out.adopted}, nil
}

// Raise advances the mark without writing.
func (g *Guard) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	out, err := g.change(ctx, "raise", stamp, nil)
	return out.mark, err
}

// Rekey moves the data to another key. The mark keeps who did so, when and why,
// until the next Rekey or Reset.
func (g *Guard) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	out, err := g.run(ctx, []any{"rekey", key, actor, note})
	return out.mark, err
}

// Reset lowers a mark whose token was made up, by [fence.Mark.Reset]. The mark
// keeps who did so, as after Rekey. Reset reads the mark and lets the law
// decide. The script changes the mark only if it has not moved since. Otherwise
// Reset begins again, and gives up with [guard.ErrBusy] after some tries.
func (g *Guard) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	for range resets {
		from, err := g.Mark(ctx)
		if err != nil {
			return fence.Mark{}, err
		}
		to, err := from.Reset(floor, time.Now())
		if err != nil {
			return from, err
		}
		out, err := g.run(ctx, []any{
			"reset", from.Key, actor, note,
			int64(from.Token), string(from.Grant), strconv.FormatUint(from.Seq, 10), int64(to.Token),
		})
		if err != nil || out.admitted {
			return out.mark, err
		}
	}
	return fence.Mark{}, fmt.Errorf("%w: somebody moves the mark of %s again and again; nothing was changed",
		guard.ErrBusy, g.target)
}

// resets is how often Reset tries while others move the mark.
const resets = 20

// outcome is the script's reply.
type outcome struct {
	admitted, adopted bool
	mark              fence.Mark
	done              int
	replies           []any
}

// change writes or raises. If the script refuses the stamp, change asks the law
// for the error, with the mark that the script has seen.
func (g *Guard) change(ctx context.Context, act string, stamp fence.Stamp, commands []Command) (outcome, error) {
	if err := g.keys.CheckNow(stamp); err != nil {
		return outcome{}, err
	}
	args := []any{act, stamp.Key, int64(stamp.Token), string(stamp.Grant), strconv.FormatUint(stamp.Seq, 10)}
	for i, c := range commands {
		if len(c) == 0 {
			return outcome{}, fmt.Errorf("%w command %d: it is empty", fence.ErrInvalid, i+1)
		}
		if len(c) > mostWords {
			return outcome{}, fmt.Errorf("%w command %d: it has %d words, a script takes at most %d; divide it",
				fence.ErrInvalid, i+1, len(c), mostWords)
		}
		args = append(append(args, len(c)), c...)
	}
	out, err := g.run(ctx, args)
	if err != nil {
		return outcome{}, err
	}
	if !out.admitted {
		law := fence.Mark.Admit
		if act == "raise" {
			law = fence.Mark.Raise
		}
		_, refusal := law(out.mark, stamp)
		if refusal == nil { // never: the script mirrors the law
			refusal = fmt.Errorf("redis: the script refused %s at the mark %+v, which the law admits", stamp, out.mark)
		}
		return outcome{mark: out.mark}, refusal
	}
	if out.done < len(commands) {
		failed := &CommandError{Index: out.done, Command: fmt.Sprint(commands[out.done][0])}
		if n := len(out.replies); n > 0 {
			failed.Err, _ = out.replies[n-1].(error)
			out.replies = out.replies[:n-1]
		}
		return out, failed
	}
	return out, nil
}

// run runs the script.
func (g *Guard) run(ctx context.Context, args []any) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, store.Unknown(wait.Ended(ctx))
	}
	values, err := wait.For(ctx, func() ([]any, error) {
		c := newCall(g.lua, goredis.NewCmd, 2, len(args))
		c.args = append(append(c.args, g.mark, g.key), args...)
		c.once = args[0] == "write" // carrying out commands twice may do harm
		c.run(ctx, g.client)
		return c.cmd.Slice()
	})
	if err != nil {
		return outcome{}, g.explain(err)
	}
	if len(values) < 6 {
		return outcome{}, store.Unknown(fmt.Errorf("redis: a script returned %d values; "+
			"is a proxy between that changes replies?", len(values)))
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i], _ = v.(string)
	}
	out := outcome{admitted: texts[0] == "1", adopted: texts[5] == "1"}
	if out.mark, err = g.parse(texts[1:5]); err != nil {
		return outcome{}, err
	}
	if len(values) > 7 {
		out.done, _ = strconv.Atoi(texts[6])
		out.replies, _ = values[7].([]any)
	}
	return out, nil
}

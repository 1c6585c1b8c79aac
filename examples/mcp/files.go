package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// serveFiles is the MCP server of an agent. Its tools are write_file and
// read_file, and its only file is plan.md. It notes every write in a journal,
// which the judge reads.
func serveFiles(folder, name string) error {
	in := func(file string) string { return filepath.Join(folder, file) }
	if err := os.WriteFile(in("server-"+name), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct {
					Text   string
					Slowly bool
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.ID == nil {
			continue // a notification
		}
		result, err := "", error(nil)
		switch args := m.Params.Arguments; m.Params.Name {
		case "write_file":
			if args.Slowly {
				err = wait(in("under-way-"+name), in("go-"+name))
			}
			if err == nil {
				err = write(in("journal"), in("plan.md"), args.Text)
			}
			result = "written"
		case "read_file":
			var text []byte
			text, err = os.ReadFile(in("plan.md"))
			result = string(text)
		}
		if err != nil {
			result = err.Error()
		}
		text, _ := json.Marshal(result) // a text has a form in JSON
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}],"isError":%t}}`+"\n",
			m.ID, text, err != nil)
	}
	return nil
}

// wait says that a write is under way, and waits until it may go on.
func wait(underWay, goOn string) error {
	if err := os.WriteFile(underWay, nil, 0o600); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(goOn); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// write notes a write in the journal, and carries it out.
func write(journal, path, text string) error {
	j, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = j.WriteString(text + "\n")
	if closed := j.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
